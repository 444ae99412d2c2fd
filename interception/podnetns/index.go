// SPDX-License-Identifier: Apache-2.0

package podnetns

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// index caches the content of a directory's files, so that looking for a hundred pods reads each
// file once. A failed read is not cached: its cause may be gone without a change of the file.
type index[T any] struct {
	directory string
	// read reads a file by its name.
	read func(name string) (T, error)

	mu    sync.Mutex
	known map[string]indexed[T]
}

// indexed is a file's content, and the file's metadata when it was read.
type indexed[T any] struct {
	info  fs.FileInfo
	value T
	err   error
}

// entries returns the current content of the files. A missing directory has no entries.
func (x *index[T]) entries() (map[string]indexed[T], error) {
	if x.directory == "" {
		return nil, nil
	}
	files, err := os.ReadDir(x.directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := make(map[string]indexed[T], len(files))
	for _, file := range files {
		info, err := os.Lstat(filepath.Join(x.directory, file.Name()))
		if err != nil || !info.Mode().IsRegular() {
			continue // removed meanwhile, or not one of our files
		}
		known, is := x.known[file.Name()]
		if !is || known.err != nil || !sameVersion(known.info, info) {
			known = indexed[T]{info: info}
			known.value, known.err = x.read(file.Name())
		}
		now[file.Name()] = known
	}
	x.known = now
	return now, nil
}

func sameVersion(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
