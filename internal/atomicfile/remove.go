// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Remove durably removes the file or symbolic link at path, and reports whether there was one. Nothing to remove is no error; a
// directory in its place is refused with [ErrNotRegular].
func Remove(path string) (removed bool, err error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open the directory of %s: %w", path, err)
	}
	defer dir.Close() //nolint:errcheck // a handle, nothing is written through it
	info, err := dir.Lstat(filepath.Base(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s, %w", kindOf(info.Mode()), ErrNotRegular)
	}
	if err == nil {
		err = dir.Remove(filepath.Base(path))
	}
	if err != nil {
		return false, fmt.Errorf("remove %s: %w", path, err)
	}
	return true, syncDirectory(dir)
}

// RemoveStale removes the temporary files that writes to path left behind when they were killed, and returns their names. Only those
// last changed before the given time go: a younger one may belong to another process that is writing now.
func RemoveStale(path string, before time.Time) (removed []string, err error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("open the directory of %s: %w", path, err)
	}
	defer dir.Close() //nolint:errcheck // a handle, nothing is written through it
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir.Name(), err)
	}
	var problems []error
	for _, entry := range entries {
		if !IsTemporary(entry.Name(), filepath.Base(path)) || !entry.Type().IsRegular() {
			continue
		}
		info, err := entry.Info()
		if err != nil || !info.ModTime().Before(before) {
			continue // gone meanwhile, or in use
		}
		if err := dir.Remove(entry.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Errorf("remove temporary file: %w", err))
			continue
		}
		removed = append(removed, entry.Name())
	}
	return removed, errors.Join(problems...)
}

// IsTemporary reports whether name is that of a temporary file for the target called base; an empty base stands for any target.
func IsTemporary(name, base string) bool {
	i := strings.LastIndex(name, temporaryInfix)
	if i <= 0 || (base != "" && name[:i] != base) {
		return false
	}
	random := name[i+len(temporaryInfix):]
	return random != "" && strings.Trim(random, "0123456789abcdef") == ""
}
