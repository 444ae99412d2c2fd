// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// Remove durably removes the file or symbolic link of this name, and reports whether it existed. A
// missing file is not an error; a directory is refused with [ErrNotRegular].
func (d Directory) Remove(name string) (removed bool, err error) {
	if err := CheckName(name); err != nil {
		return false, err
	}
	root, err := d.open()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer root.Close() //nolint:errcheck // a handle, nothing is written through it
	info, err := root.Lstat(name)
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s, %w", kindOf(info.Mode()), ErrNotRegular)
	}
	if err == nil {
		err = d.remove(root, name)
	}
	if errors.Is(err, fs.ErrNotExist) { // another program may just have removed it
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("remove %s: %w", d.In(name), err)
	}
	return true, d.sync(root)
}

// RemoveExpected is [Directory.Remove] of a regular file with the expected content. A file with
// other content stays, and the error wraps [ErrChanged].
func (d Directory) RemoveExpected(name string, expected []byte) (removed bool, err error) {
	err = d.unchanged(name, Options{Expect: expected})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("remove %s: %w", d.In(name), err)
	}
	return d.Remove(name)
}

// RemoveStale removes the temporary files that killed processes left in the directory, and returns
// their names. It removes only those last changed before the given time: a younger one may belong
// to a process that is writing now. The removal is not synced: if it is lost, the files are stale
// again.
func (d Directory) RemoveStale(before time.Time) (removed []string, err error) {
	root, err := d.open()
	if err != nil {
		return nil, fmt.Errorf("look for temporary files: %w", err)
	}
	defer root.Close() //nolint:errcheck // a handle, nothing is written through it
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("look for temporary files in %s: %w", d.Path, err)
	}
	var problems []error
	for _, entry := range entries {
		if !IsTemporary(entry.Name()) || !entry.Type().IsRegular() {
			continue
		}
		info, err := entry.Info()
		if err != nil || !info.ModTime().Before(before) {
			continue // removed meanwhile, or in use
		}
		if err := d.remove(root, entry.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Errorf("remove temporary file in %s: %w", d.Path, err))
			continue
		}
		removed = append(removed, entry.Name())
	}
	return removed, errors.Join(problems...)
}
