// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode"
)

// ErrName is in the error for a name that is not bare, and so could lead out of its directory.
var ErrName = errors.New("not a bare file name")

// Directory is a directory to work in. Each operation opens it again, as it may be recreated.
type Directory struct {
	// Path is the directory's path; links in it are followed.
	Path string
	// Within, unless it is empty, is a directory at or above Path. A link in the rest of Path that
	// leads out of it is an error.
	Within string
	// Observer sees each call that changes something; nil makes the calls directly.
	Observer Observer
}

// In returns the path of a name in the directory, for messages and for functions that need paths.
func (d Directory) In(name string) string { return filepath.Join(d.Path, name) }

// CheckName refuses a name that is not a bare file name, with [ErrName].
func CheckName(name string) error {
	if name == "" || name == "." || name != filepath.Base(name) || !filepath.IsLocal(name) {
		return fmt.Errorf("%q is %w: give the name of a file in the directory, without a path", name, ErrName)
	}
	return nil
}

// CheckNewName refuses what [CheckName] does, and names that an operator could not see or write in
// a configuration: those with white space or control characters. It is for the names of our own
// files; other programs choose theirs.
func CheckNewName(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return fmt.Errorf("%q is %w: give it no white space and no control characters", name, ErrName)
	}
	return nil
}

// Stat describes the file of a name, without following a link. If it is missing the error satisfies
// [fs.ErrNotExist].
func (d Directory) Stat(name string) (fs.FileInfo, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if d.Within == "" {
		return os.Lstat(d.In(name))
	}
	root, err := d.open()
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // a handle, nothing is written through it
	return root.Lstat(name)
}

// List returns the directory's entries, sorted by name, including leftovers of killed processes.
func (d Directory) List() ([]fs.DirEntry, error) { return os.ReadDir(d.Path) }

// Make creates the directory with the permission bits, durably, and missing directories above it.
// An existing directory stays unchanged.
func (d Directory) Make(mode fs.FileMode) error {
	info, err := os.Stat(d.Path)
	if err == nil && !info.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: d.Path, Err: errors.New("something that isn't a directory is in the way; remove it")}
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := Directory{Path: filepath.Dir(d.Path), Observer: d.Observer}
	if err := above.Make(mode); err != nil {
		return err
	}
	err = d.observe(Call{Operation: MakeDirectory, Path: d.Path, Mode: mode}, func() error { return os.Mkdir(d.Path, mode) })
	if err != nil && !errors.Is(err, fs.ErrExist) { // another process may have created it meanwhile
		return err
	}
	return above.Sync()
}

// Sync makes the directory's names durable. Operations that change names do so themselves. Sync is
// for a process that continues after a killed one, which may not have synced its last change.
func (d Directory) Sync() error {
	root, err := d.open()
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // a handle, nothing is written through it
	return d.sync(root)
}

func (d Directory) open() (*os.Root, error) {
	root, err := d.openWithin()
	if err != nil {
		return nil, fmt.Errorf("open directory: %w", err)
	}
	return root, nil
}

func (d Directory) openWithin() (*os.Root, error) {
	if d.Within == "" {
		return os.OpenRoot(d.Path)
	}
	rest, err := filepath.Rel(d.Within, d.Path)
	if err != nil {
		return nil, err
	}
	above, err := os.OpenRoot(d.Within)
	if err != nil {
		return nil, err
	}
	defer above.Close() //nolint:errcheck // a handle, nothing is written through it
	return above.OpenRoot(rest)
}

func (d Directory) sync(root *os.Root) error {
	if runtime.GOOS == "windows" {
		return nil // this system cannot sync directories
	}
	directory, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("open directory %s to sync it: %w", d.Path, err)
	}
	err = d.observe(Call{Operation: SyncDirectory, Path: d.Path}, directory.Sync)
	if err := errors.Join(err, directory.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", d.Path, err)
	}
	return nil
}

func (d Directory) remove(root *os.Root, name string) error {
	return d.observe(Call{Operation: Remove, Path: d.In(name)}, func() error { return root.Remove(name) })
}

// Nudge creates and removes a temporary file, to notify programs that watch the directory (with
// inotify), but not its subdirectories. It is not synced, because nothing of it is to last.
func (d Directory) Nudge() error {
	root, err := d.open()
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // a handle, nothing is written through it
	temporary := temporaryName(".nudge")
	handle, err := d.create(root, temporary)
	err = nameless(err)
	if handle != nil {
		err = errors.Join(err, handle.Close(), nameless(d.remove(root, temporary)))
	}
	if err != nil {
		return fmt.Errorf("nudge those who watch %s: %w", d.Path, err)
	}
	return nil
}

// RemoveEmpty durably removes the directory itself, if it is empty, and reports whether it did. A
// directory that is missing or not empty is not an error.
func (d Directory) RemoveEmpty() (removed bool, err error) {
	above, name := Directory{Path: filepath.Dir(d.Path), Observer: d.Observer}, filepath.Base(d.Path)
	info, err := above.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is %s, not a directory; remove it", d.Path, kindOf(info.Mode()))
	}
	if err != nil {
		return false, err
	}
	entries, err := d.List()
	if err != nil || len(entries) > 0 {
		return false, err
	}
	root, err := above.open()
	if err != nil {
		return false, err
	}
	defer root.Close() //nolint:errcheck // a handle, nothing is written through it
	if err := above.remove(root, name); err != nil {
		return false, fmt.Errorf("remove %s: %w", d.Path, err)
	}
	return true, above.sync(root)
}

// Foreign reports whether a file belongs to another user than the process's effective one. It is
// false on systems without file owners.
func Foreign(info fs.FileInfo) bool { return !look{mode: info.Mode().Perm()}.matches(info) }
