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

// Snapshot is what a directory of CNI configurations held at one moment: the relevant files, by
// their paths with slashes, and the directories named after networks, with their files.
type Snapshot map[string]File

// File is one file, or directory, of a [Snapshot].
type File struct {
	// Data is the content of a regular file, or of the one that a link leads to.
	Data []byte
	// Mode has the kind and the permission bits of the file itself: a link is a link.
	Mode fs.FileMode
	// Time is when the file, or the target of a link, was last changed.
	Time time.Time
	// Foreign means that the file belongs to another user than the process.
	Foreign bool
	// Target is the path of a link's final target, a file in the snapshot; empty otherwise.
	Target string
	// Through are the paths that a link passes through: changing one may redirect it.
	Through []string
	// Err is why the content could not be read.
	Err error
}

// backupSuffix is what Cilium appends to the names of other programs' files (cni.exclusive), and
// removes again when it is uninstalled.
const backupSuffix = ".cilium_bak"

// relevant reports whether a file in the directory matters: runtimes load it, or an agent will
// rename it back so that they do.
func relevant(name string) bool {
	name = strings.TrimSuffix(name, backupSuffix)
	return slices.Contains([]string{listExtension, ".conf", ".json"}, path.Ext(name))
}

// isBackup reports whether an agent may rename the file back.
func isBackup(name string) bool { return strings.HasSuffix(name, backupSuffix) }

func (s Snapshot) names() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(name string) bool { return strings.Contains(name, "/") || s[name].Mode.IsDir() })
}

// regular returns a regular file, or nil if the name is missing or is a link, directory or device.
func (s Snapshot) regular(name string) *File {
	f, ok := s[name]
	if !ok || !f.Mode.IsRegular() || f.Err != nil {
		return nil
	}
	return &f
}

// content returns a regular file, or a link to one; nil otherwise.
func (s Snapshot) content(name string) *File {
	f, ok := s[name]
	if !ok || f.Err != nil || !f.Mode.IsRegular() && f.Target == "" {
		return nil
	}
	return &f
}

// target returns the file with the content of a name: the target of a link, or the file itself.
func (s Snapshot) target(name string) string {
	return cmp.Or(s[name].Target, name)
}

// files returns the files in the directory itself, and the targets of its links.
func (s Snapshot) files() []string {
	files := s.names()
	for _, name := range files {
		files = append(files, s.target(name))
	}
	slices.Sort(files)
	return slices.Compact(files)
}

func (s Snapshot) isLink(name string) bool { return s[name].Mode&fs.ModeSymlink != 0 }

func (s Snapshot) through() []string {
	var paths []string
	for _, f := range s {
		paths = append(paths, f.Through...)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// has reports whether a file contains a plugin's name, and so may have an entry of it.
func (f *File) has(typ string) bool { return f != nil && bytes.Contains(f.Data, []byte(typ)) }

func (f *File) hasEntry(typ string) bool {
	if f == nil {
		return false
	}
	_, found, err := conflist.Find(f.Data, typ)
	return err == nil && found
}

// primary returns the file that a runtime loads, among those that consider accepts.
func (s Snapshot) primary(consider func(name string) bool) (string, error) {
	return conflist.Primary(view{s, consider})
}

// view presents a snapshot as a file system, with only what conflist.Primary needs.
type view struct {
	Snapshot
	consider func(name string) bool
}

// Open opens a regular file, or the target of a link.
func (v view) Open(name string) (fs.File, error) {
	info, err := v.Stat(name)
	if err != nil {
		return nil, err
	}
	return &openFile{bytes.NewReader(v.Snapshot[name].Data), info}, nil
}

// Stat describes the target of a path.
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

// ReadDir lists the directory, or a network's directory.
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
