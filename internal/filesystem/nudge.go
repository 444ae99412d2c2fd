// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Nudge makes and removes a temporary file, for programs that watch the directory and not those in it: inotify tells them. It is
// not synced, because nothing of it is to last.
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

// RemoveEmpty durably removes the directory itself, if nothing is in it, and reports whether it did. One that is gone, or has something in
// it, is no error.
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

// Foreign reports whether a file belongs to another user than the process's effective one. Where the system has no owners, none does.
func Foreign(info fs.FileInfo) bool {
	if !hasOwners {
		return false
	}
	return !look{mode: info.Mode().Perm()}.matches(info)
}
