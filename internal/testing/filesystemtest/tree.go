// SPDX-License-Identifier: Apache-2.0

package filesystemtest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

const dirMode = fs.ModeDir

// Tree is the content of a directory: files by their relative paths.
type Tree map[string]File

// File is a regular file, a directory or a symbolic link, as its mode says.
type File struct {
	Mode fs.FileMode
	// Content is a regular file's content, or a link's target.
	Content string
}

// Read returns the tree below a directory, without sockets, pipes, devices and vanishing files.
func Read(root string) (Tree, error) {
	tree := Tree{}
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == root {
			return ignoreMissing(err)
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		file, err := readFile(path)
		if err == nil && (file.Mode.IsRegular() || file.Mode.IsDir() || file.Mode&fs.ModeSymlink != 0) {
			tree[name] = file
		}
		return ignoreMissing(err)
	})
	if err != nil {
		return nil, fmt.Errorf("read the tree below %s: %w", root, err)
	}
	return tree, nil
}

func readFile(path string) (File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return File{}, err
	}
	f := File{Mode: info.Mode()}
	var content []byte
	switch {
	case info.Mode().IsRegular():
		content, err = os.ReadFile(path)
	case info.Mode()&fs.ModeSymlink != 0:
		f.Content, err = os.Readlink(path)
		return f, err
	}
	f.Content = string(content)
	return f, err
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Materialise makes the content of root equal to this tree: it replaces what differs and removes
// what is not in the tree. Equal files stay unchanged.
func (t Tree) Materialise(root string) error {
	now, err := Read(root)
	if err != nil {
		return err
	}
	var errs []error
	for name, file := range now {
		if want, ok := t[name]; !ok || want != file {
			if file.Mode.IsDir() && want.Mode.IsDir() {
				continue
			}
			errs = append(errs, os.RemoveAll(filepath.Join(root, name)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t)) { // a directory before what is in it
		if now[name] != t[name] {
			errs = append(errs, t[name].make(filepath.Join(root, name)))
		}
	}
	return errors.Join(errs...)
}

// Put is Materialise, and returns the disk with the tree: a copy of on, or, if on is nil, a disk on
// which the whole tree is durable.
func (t Tree) Put(root string, on *Disk) (*Disk, error) {
	if err := t.Materialise(root); err != nil {
		return nil, err
	}
	if on != nil {
		return on.Clone(), nil
	}
	return NewDisk(root)
}

func (f File) make(path string) error {
	switch {
	case f.Mode.IsDir():
		if err := os.Mkdir(path, f.Mode.Perm()); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case f.Mode&fs.ModeSymlink != 0:
		return os.Symlink(f.Content, path)
	default:
		if err := os.WriteFile(path, []byte(f.Content), f.Mode.Perm()); err != nil {
			return err
		}
	}
	return os.Chmod(path, f.Mode.Perm())
}
