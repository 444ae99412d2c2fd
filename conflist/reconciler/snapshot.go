// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/internal/filesystem"
)

// Snapshot is what a directory of CNI configurations held at one moment: the files that matter here, by their paths with slashes, and the
// directories that are named after networks, with the files in them.
type Snapshot map[string]File

// File is one file, or directory, of a [Snapshot].
type File struct {
	// Data is the content of a regular file, or of the one that a link leads to.
	Data []byte
	// Mode has the kind and the permission bits of the file itself: a link is a link.
	Mode fs.FileMode
	// Time is when it, or what a link leads to, was last changed.
	Time time.Time
	// Foreign says that the file isn't the process's own user's.
	Foreign bool
	// Target is the path of the regular file that a link leads to in the end, which is in the snapshot too; empty for all else.
	Target string
	// Through are the paths that a link leads by: when one of them changes, it may lead elsewhere.
	Through []string
	// Err is why the content couldn't be had.
	Err error
}

// backupSuffix is behind the names that Cilium gives to the files of others (cni.exclusive), and takes away again when it is uninstalled.
const backupSuffix = ".cilium_bak"

// relevant reports whether a file of this name, in the directory, matters: runtimes load it, or an agent will give it back to them.
func relevant(name string) bool {
	name = strings.TrimSuffix(name, backupSuffix)
	return slices.Contains([]string{listExtension, ".conf", ".json"}, path.Ext(name))
}

// isBackup reports whether it is of the latter kind.
func isBackup(name string) bool { return strings.HasSuffix(name, backupSuffix) }

// names lists the files in the directory itself, in order.
func (s Snapshot) names() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(name string) bool { return strings.Contains(name, "/") || s[name].Mode.IsDir() })
}

// regular gives a file that is there and no link, directory or device; nil if it isn't.
func (s Snapshot) regular(name string) *File {
	f, ok := s[name]
	if !ok || !f.Mode.IsRegular() || f.Err != nil {
		return nil
	}
	return &f
}

// content gives a regular file, or a link to one; nil for all else.
func (s Snapshot) content(name string) *File {
	f, ok := s[name]
	if !ok || f.Err != nil || !f.Mode.IsRegular() && f.Target == "" {
		return nil
	}
	return &f
}

// behind is the file that holds what has the name: the target of a link, or itself.
func (s Snapshot) behind(name string) string {
	return cmp.Or(s[name].Target, name)
}

// files lists the files in the directory itself, and those that links in it lead to.
func (s Snapshot) files() []string {
	files := s.names()
	for _, name := range files {
		files = append(files, s.behind(name))
	}
	slices.Sort(files)
	return slices.Compact(files)
}

// isLink reports whether a name is a link's, wherever it leads.
func (s Snapshot) isLink(name string) bool { return s[name].Mode&fs.ModeSymlink != 0 }

// through are the paths that the links lead by.
func (s Snapshot) through() []string {
	var paths []string
	for _, f := range s {
		paths = append(paths, f.Through...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// has reports whether a plugin's name is in a file's bytes: then an entry may be, whatever else the file is.
func (f *File) has(typ string) bool { return f != nil && bytes.Contains(f.Data, []byte(typ)) }

// hasEntry reports whether a document has an entry of the plugin's.
func (f *File) hasEntry(typ string) bool {
	if f == nil {
		return false
	}
	_, found, err := conflist.Find(f.Data, typ)
	return err == nil && found
}

// primary is the file that a runtime loads, of those that a filter lets pass.
func (s Snapshot) primary(consider func(name string) bool) (string, error) {
	return conflist.Primary(view{s, consider})
}

// view shows a snapshot as the file system that conflist.Primary asks. It knows no more than that needs.
type view struct {
	Snapshot
	consider func(name string) bool
}

// Open opens a regular file, or what a link leads to.
func (v view) Open(name string) (fs.File, error) {
	info, err := v.Stat(name)
	if err != nil {
		return nil, err
	}
	return &openFile{bytes.NewReader(v.Snapshot[name].Data), info}, nil
}

// Stat says what a path leads to.
func (v view) Stat(name string) (fs.FileInfo, error) {
	f, ok := v.Snapshot[name]
	if !ok {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	if errors.Is(f.Err, filesystem.ErrNowhere) { // as a runtime finds
		return nil, fmt.Errorf("%w (%w)", f.Err, fs.ErrNotExist)
	}
	if f.Err != nil {
		return nil, f.Err
	}
	if f.Target != "" {
		f.Mode = f.Mode.Perm()
	}
	return fileInfo{name, f}, nil
}

// ReadDir lists the directory, or one of a network's.
func (v view) ReadDir(name string) ([]fs.DirEntry, error) {
	var entries []fs.DirEntry
	for _, file := range slices.Sorted(maps.Keys(v.Snapshot)) {
		if path.Dir(file) == name && v.consider(file) && !isBackup(file) {
			entries = append(entries, fs.FileInfoToDirEntry(fileInfo{file, v.Snapshot[file]}))
		}
	}
	return entries, nil
}

type openFile struct {
	*bytes.Reader
	info fs.FileInfo
}

func (o *openFile) Stat() (fs.FileInfo, error) { return o.info, nil }
func (o *openFile) Close() error               { return nil }

type fileInfo struct {
	path string
	file File
}

func (i fileInfo) Name() string       { return path.Base(i.path) }
func (i fileInfo) Size() int64        { return int64(len(i.file.Data)) }
func (i fileInfo) Mode() fs.FileMode  { return i.file.Mode }
func (i fileInfo) ModTime() time.Time { return i.file.Time }
func (i fileInfo) IsDir() bool        { return i.file.Mode.IsDir() }
func (i fileInfo) Sys() any           { return nil }
