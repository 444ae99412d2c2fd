// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrNotRegular is in the error for a path to anything but a regular file, links included.
var ErrNotRegular = errors.New("not a regular file; remove it or put a regular file in its place")

// ErrTooLarge is in the error for a file above the limit of a read.
var ErrTooLarge = errors.New("file is larger than the limit")

// Read returns the content of the regular file of this name. A symbolic link is refused with
// [ErrNotRegular], and a file longer than limit bytes with [ErrTooLarge]; for a missing file the
// error satisfies [fs.ErrNotExist].
func (d Directory) Read(name string, limit int64) ([]byte, error) {
	file, _, err := d.openRegular(name)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from
	return readAll(file, limit)
}

// ReadThroughLinks returns the content of a regular file, through links if the path has any. A file
// longer than limit bytes is refused with [ErrTooLarge].
func ReadThroughLinks(path string, limit int64) ([]byte, error) {
	return readChecked(path, limit, func(string, fs.FileInfo) error { return nil })
}

func readChecked(path string, limit int64, check func(path string, info fs.FileInfo) error) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err == nil {
		err = check(path, info)
	}
	if err != nil {
		return nil, err
	}
	return readAll(file, limit)
}

func readAll(file *os.File, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file.Name(), err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: %w of %d bytes", file.Name(), ErrTooLarge, limit)
	}
	return data, nil
}

// openRegular opens a regular file for reading, and never through a link.
func (d Directory) openRegular(name string) (*os.File, fs.FileInfo, error) {
	if _, err := d.statRegular(name); err != nil {
		return nil, nil, err
	}
	// openFlags hold even if the file was replaced since the check, which has the clearer error.
	file, err := d.openToRead(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: d.In(name), Err: ErrNotRegular}
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

func (d Directory) openToRead(name string) (*os.File, error) {
	if d.Within == "" {
		return os.OpenFile(d.In(name), os.O_RDONLY|openFlags, 0)
	}
	root, err := d.open()
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // a handle, nothing is written through it
	return root.OpenFile(name, os.O_RDONLY|openFlags, 0)
}

func (d Directory) statRegular(name string) (fs.FileInfo, error) {
	info, err := d.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: d.In(name), Err: fmt.Errorf("%s, %w", kindOf(info.Mode()), ErrNotRegular)}
	}
	return info, err
}

func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode.IsDir():
		return "a directory"
	default:
		return "of type " + mode.Type().String()
	}
}

// SameAs reports whether the regular file of a name has the same content as one in another
// directory. For a missing file the error satisfies [fs.ErrNotExist].
func (d Directory) SameAs(other Directory, from, name string) (bool, error) {
	file, info, err := d.openRegular(name)
	if err != nil {
		return false, err
	}
	defer file.Close() //nolint:errcheck // only read from
	like, likeInfo, err := other.openRegular(from)
	if err != nil {
		return false, err
	}
	defer like.Close() //nolint:errcheck // only read from
	if info.Size() != likeInfo.Size() {
		return false, nil
	}
	return equal(file, like)
}

// ReadTrusted returns the content of a regular file that [CheckTrusted] accepts, through links if
// the path has any. A file longer than limit bytes is refused with [ErrTooLarge].
func ReadTrusted(path string, limit int64) ([]byte, error) {
	return readChecked(path, limit, CheckTrusted)
}

// CheckTrusted refuses the file or directory at a path if a user other than root and this process's
// own may write to it or owns it. On systems without owners any owner will do.
func CheckTrusted(path string, info fs.FileInfo) error {
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s has mode %s, and other users may write to it: forbid that (chmod go-w)", path, info.Mode())
	}
	if owner := ownerOf(info); hasOwners && (owner == nil || owner.uid != 0 && owner.uid != os.Geteuid()) {
		return fmt.Errorf("%s belongs to another user: give it to root (chown)", path)
	}
	return nil
}
