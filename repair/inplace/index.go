// SPDX-License-Identifier: Apache-2.0

package inplace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// index remembers what the files of a directory say, so that to look for a hundred pods reads each file once.
type index[T any] struct {
	directory string
	// read reads a file by its name.
	read func(name string) (T, error)

	mu    sync.Mutex
	known map[string]indexed[T]
}

// indexed is what a file says, and the file as it was then.
type indexed[T any] struct {
	info  fs.FileInfo
	value T
	err   error
}

// entries are what the files say now. A directory that isn't there has none.
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
			continue // it has gone meanwhile, or was never a file of ours
		}
		known, is := x.known[file.Name()]
		if !is || !sameVersion(known.info, info) {
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
