// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Options are a file's mode, owner and expected content. With the zero value only the owner can
// read the file.
type Options struct {
	// Mode is the file's permission bits, independent of the umask. Zero means 0600. The file
	// belongs to the process's effective user; a file of another user is replaced, because that
	// user could write to it. Mode is not used if Like is set.
	Mode fs.FileMode
	// Like is the name of a regular file in the directory from which the new file takes permission
	// bits and owner; it may be the target itself. For a missing file the error satisfies
	// [fs.ErrNotExist].
	Like string
	// Expect, unless it is nil, is the expected content of the target. If the target has other
	// content when the new content is ready, another program has written since it was read: the
	// target stays unchanged and the error is [ErrChanged].
	Expect []byte
	// New says that there is to be no target, likewise.
	New bool
}

// ErrChanged is in the error for a target without the expected content.
var ErrChanged = errors.New("another program has changed the file meanwhile; read it again")

// Write gives the file of this name the content data, and reports whether it had to be written. The
// directory must exist. After an error the old file is in place; if changed is true, the new file
// is, and only the directory's sync failed.
func (d Directory) Write(name string, data []byte, o Options) (changed bool, err error) {
	return d.replace(name, bytes.NewReader(data), int64(len(data)), o)
}

// CopyAs gives the file of a name the content of a regular file in another directory, and reports
// whether it had to be written. It compares and copies in pieces, without holding the whole content
// in memory. Errors are those of [Directory.Write].
func (d Directory) CopyAs(other Directory, from, name string, o Options) (changed bool, err error) {
	source, info, err := other.openRegular(from)
	if err != nil {
		return false, err
	}
	defer source.Close() //nolint:errcheck // only read from
	return d.replace(name, source, info.Size(), o)
}

// replace does the work of Write and CopyAs; it reads content from its start, if necessary twice.
func (d Directory) replace(name string, content io.ReadSeeker, size int64, o Options) (changed bool, err error) {
	if err := CheckName(name); err != nil {
		return false, err
	}
	want, err := d.lookOf(o)
	if err != nil {
		return false, err
	}
	root, err := d.open()
	if err != nil {
		return false, err
	}
	defer root.Close() //nolint:errcheck // a handle, nothing is written through it
	same, err := d.has(name, content, size, want)
	if err != nil || same {
		return false, err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return false, fmt.Errorf("read the content for %s again: %w", d.In(name), err)
	}
	temporary, err := d.writeTemporary(root, name, content, size, want)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", d.In(name), err)
	}
	err = d.unchanged(name, o)
	if err == nil {
		err = nameless(d.rename(root, temporary, name))
	}
	if err != nil {
		return false, errors.Join(fmt.Errorf("replace %s: %w", d.In(name), err), d.discard(root, temporary))
	}
	return true, d.sync(root)
}

func (d Directory) rename(root *os.Root, from, to string) error {
	return d.observe(Call{Operation: Rename, Path: d.In(from), To: d.In(to)}, func() error { return root.Rename(from, to) })
}

// unchanged compares a file with what is expected of it, if anything.
func (d Directory) unchanged(name string, o Options) error {
	if o.New {
		_, err := d.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return cmp.Or(err, ErrChanged)
	}
	if o.Expect == nil {
		return nil
	}
	data, err := d.Read(name, int64(len(o.Expect)))
	if errors.Is(err, ErrTooLarge) || (err == nil && !bytes.Equal(data, o.Expect)) {
		return ErrChanged
	}
	return err
}

// has reports whether a file already has the content and the look. A missing file does not.
func (d Directory) has(name string, content io.Reader, size int64, want look) (bool, error) {
	file, info, err := d.openRegular(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close() //nolint:errcheck // only read from
	if info.Size() != size || !want.matches(info) {
		return false, nil
	}
	same, err := equal(file, content)
	if err != nil {
		return false, fmt.Errorf("compare with %s: %w", d.In(name), err)
	}
	return same, nil
}

func equal(a, b io.Reader) (bool, error) {
	const piece = 64 << 10
	bufferA, bufferB := make([]byte, piece), make([]byte, piece)
	for {
		n, errA := io.ReadFull(a, bufferA)
		m, errB := io.ReadFull(b, bufferB)
		if !bytes.Equal(bufferA[:n], bufferB[:m]) {
			return false, nil
		}
		for _, err := range []error{errA, errB} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, err
			}
		}
		if errA != nil || errB != nil {
			return true, nil
		}
	}
}
