// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// The name of a temporary file is that of its target, this infix and random hexadecimal digits. No
// container runtime takes such a name for a CNI configuration.
const (
	temporaryInfix = ".tmp."
	randomDigits   = 16
)

// IsTemporary reports whether this package gives such names to temporary files: the target's,
// ".tmp." and 16 hexadecimal digits.
func IsTemporary(name string) bool {
	i := strings.LastIndex(name, temporaryInfix)
	if i <= 0 {
		return false
	}
	random := name[i+len(temporaryInfix):]
	return len(random) == randomDigits && strings.Trim(random, "0123456789abcdef") == ""
}

// temporaryName returns a name that no other writer takes. It need not be a secret, because create
// takes no file that exists.
func temporaryName(target string) string {
	return fmt.Sprintf("%s%s%0*x", target, temporaryInfix, randomDigits, rand.Uint64())
}

// writeTemporary writes and syncs a new file beside the target called name, and returns the new
// file's name. After an error it leaves no file.
func (d Directory) writeTemporary(root *os.Root, name string, content io.Reader, size int64, want look) (temporary string, err error) {
	temporary = temporaryName(name)
	handle, err := d.create(root, temporary)
	if handle == nil {
		return "", nameless(err)
	}
	if err == nil {
		err = file{handle, d, d.In(temporary)}.fill(content, size, want)
	}
	if closeErr := handle.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", errors.Join(nameless(err), d.discard(root, temporary))
	}
	return temporary, nil
}

// create creates an empty file. A handle returned with an error is the caller's to discard.
func (d Directory) create(root *os.Root, name string) (handle *os.File, err error) {
	const mode = 0o600
	err = d.observe(Call{Operation: Create, Path: d.In(name), Mode: mode}, func() (err error) {
		// O_EXCL: never write to an existing file or through a symbolic link.
		handle, err = root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		return err
	})
	return handle, err
}

// nameless removes the temporary name from an error of the system, so that the same failure has the
// same text each time.
func nameless(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path) && IsTemporary(filepath.Base(path.Path)):
		return fmt.Errorf("%s a temporary file: %w", path.Op, path.Err)
	case errors.As(err, &link) && IsTemporary(filepath.Base(link.Old)):
		return fmt.Errorf("%s a temporary file: %w", link.Op, link.Err)
	}
	return err
}

// discard removes a temporary file, if it still exists: its rename may only seem to have failed.
func (d Directory) discard(root *os.Root, temporary string) error {
	if err := d.remove(root, temporary); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// file is a file that is being written. Its calls are observed.
type file struct {
	*os.File
	in   Directory
	path string
}

func (f file) Write(data []byte) (n int, err error) {
	err = f.in.observe(Call{Operation: Write, Path: f.path, Data: data}, func() (err error) {
		n, err = f.File.Write(data)
		return err
	})
	return n, err
}

func (f file) fill(content io.Reader, size int64, want look) error {
	// The bare writer: os.File's ReadFrom has the kernel copy, past the observer.
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{content}, make([]byte, min(size+1, 256<<10)))
	if err != nil {
		return err
	}
	if n != size {
		return fmt.Errorf("the source changed while it was copied: %d bytes read, %d expected", n, size)
	}
	if err := f.give(want); err != nil {
		return err
	}
	return f.in.observe(Call{Operation: Sync, Path: f.path}, f.Sync)
}
