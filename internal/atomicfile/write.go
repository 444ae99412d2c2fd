// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Options says how a file is to look beside its content. The zero value makes a file that only its owner can read.
type Options struct {
	// Mode is the file's permission bits, independent of the umask. Zero means 0600. The file belongs to the process's effective user;
	// one of another user is replaced, because that one could write to it. Mode is not used when Like is set.
	Mode fs.FileMode
	// Like is the path of a regular file whose permission bits and owner the new file takes; it may be the target itself. A missing
	// file is an error that satisfies [fs.ErrNotExist].
	Like string
	// Expect, unless it is nil, is what the target is believed to hold. If it holds something else by the time the new content is
	// ready, it is left alone and the error is [ErrChanged]: somebody else has written since it was read.
	Expect []byte
}

// ErrChanged is in the error for a target that doesn't hold what [Options].Expect says.
var ErrChanged = errors.New("the file was changed by somebody else meanwhile; read it again")

// Write makes the file at path hold data, and reports whether it had to be written. The directory must exist. After an error the old
// file is in place, or the new one when changed is true and only the directory's sync failed.
func Write(path string, data []byte, o Options) (changed bool, err error) {
	return replace(path, bytes.NewReader(data), int64(len(data)), o)
}

// Copy makes the file at path hold the content of the regular file source, and reports whether it had to be written. The content is
// compared and copied in pieces, never held in memory as a whole. Errors are those of [Write].
func Copy(path, source string, o Options) (changed bool, err error) {
	from, info, err := openRegular(source)
	if err != nil {
		return false, err
	}
	defer from.Close() //nolint:errcheck // only read from
	return replace(path, from, info.Size(), o)
}

// replace does the work of Write and Copy; content is read from its start, twice if need be.
func replace(path string, content io.ReadSeeker, size int64, o Options) (changed bool, err error) {
	want, err := lookOf(o)
	if err != nil {
		return false, err
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return false, fmt.Errorf("open the directory of %s: %w", path, err)
	}
	defer dir.Close() //nolint:errcheck // a handle, nothing is written through it
	same, err := holds(path, content, size, want)
	if err != nil || same {
		return false, err
	}
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return false, fmt.Errorf("read the content for %s again: %w", path, err)
	}
	name := filepath.Base(path)
	temporary, err := writeTemporary(dir, name, content, size, want)
	if err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	err = unchanged(path, o.Expect)
	if err == nil {
		err = dir.Rename(temporary, name)
	}
	if err != nil {
		return false, errors.Join(fmt.Errorf("replace %s: %w", path, err), dir.Remove(temporary))
	}
	return true, syncDirectory(dir)
}

// unchanged compares the file at path with what is expected of it, if anything is.
func unchanged(path string, expected []byte) error {
	if expected == nil {
		return nil
	}
	data, err := Read(path, int64(len(expected)))
	if errors.Is(err, ErrTooLarge) || (err == nil && !bytes.Equal(data, expected)) {
		return ErrChanged
	}
	return err
}

// holds reports whether the file at path has the content and the look already. A missing file has not.
func holds(path string, content io.Reader, size int64, want look) (bool, error) {
	file, info, err := openRegular(path)
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
		return false, fmt.Errorf("compare with %s: %w", path, err)
	}
	return same, nil
}

// writeTemporary writes and syncs a new file beside the target called name, and returns its own name. It leaves nothing after an error.
func writeTemporary(dir *os.Root, name string, content io.Reader, size int64, want look) (temporary string, err error) {
	temporary = name + temporaryInfix + randomSuffix()
	// O_EXCL: never write through something that is there, a symbolic link included.
	file, err := dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.Remove(temporary))
		}
	}()
	err = fill(file, content, size, want)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return temporary, err
}

func fill(file *os.File, content io.Reader, size int64, want look) error {
	n, err := io.Copy(file, content)
	if err != nil {
		return err
	}
	if n != size {
		return fmt.Errorf("the source changed while it was copied: %d bytes read, %d expected", n, size)
	}
	if err := want.give(file); err != nil {
		return err
	}
	return file.Sync()
}

// equal compares two readers to their ends.
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

// A temporary file is called like its target, with this infix and random hexadecimal digits behind. No container runtime takes such a
// name for a CNI configuration.
const (
	temporaryInfix = ".tmp."
	randomBytes    = 8
)

func randomSuffix() string {
	var b [randomBytes]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// syncDirectory makes a rename or a removal in the directory durable.
func syncDirectory(dir *os.Root) error {
	if runtime.GOOS == "windows" {
		return nil // directories can't be synced there
	}
	d, err := dir.Open(".")
	if err != nil {
		return fmt.Errorf("open directory %s to sync it: %w", dir.Name(), err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir.Name(), err)
	}
	return nil
}
