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

// RemoveStale removes the temporary files that killed processes left in a directory, and returns their names. Only those last changed
// before the given time go: a younger one may belong to a process that is writing now.
func RemoveStale(directory string, before time.Time) (removed []string, err error) {
	dir, err := os.OpenRoot(directory)
	if err != nil {
		return nil, fmt.Errorf("look for temporary files: %w", err)
	}
	defer dir.Close() //nolint:errcheck // a handle, nothing is written through it
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("look for temporary files in %s: %w", directory, err)
	}
	var problems []error
	for _, entry := range entries {
		if !IsTemporary(entry.Name()) || !entry.Type().IsRegular() {
			continue
		}
		info, err := entry.Info()
		if err != nil || !info.ModTime().Before(before) {
			continue // gone meanwhile, or in use
		}
		if err := dir.Remove(entry.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Errorf("remove temporary file in %s: %w", directory, err))
			continue
		}
		removed = append(removed, entry.Name())
	}
	return removed, errors.Join(problems...)
}

// IsTemporary reports whether a file name is one that this package gives to temporary files: the target's, ".tmp." and 16 hexadecimal
// digits.
func IsTemporary(name string) bool {
	i := strings.LastIndex(name, temporaryInfix)
	if i <= 0 {
		return false
	}
	random := name[i+len(temporaryInfix):]
	return len(random) == 2*randomBytes && strings.Trim(random, "0123456789abcdef") == ""
}
