// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// readyName is a file in the run directory, which a reboot clears: that it is there says that the plugin was ready once, and its age how
// long ago it last was.
const readyName = "istio-cni.ready"

const (
	// unreadyFor is how long STATUS may say so under after-first-ready. An agent that can't start before STATUS is content gets a chance then.
	unreadyFor = 10 * time.Minute
	// readyFor is how long an answer of the API server counts: a runtime asks every five seconds, on every node.
	readyFor = 30 * time.Second
)

// readyMark is that file.
type readyMark struct{ path string }

func (c config) readyMark() readyMark { return readyMark{filepath.Join(c.RunDir, readyName)} }

// age is how long ago the plugin was ready; it never was without the file, nor in the future.
func (m readyMark) age(now time.Time) (age time.Duration, found bool, err error) {
	info, err := os.Lstat(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	age = now.Sub(info.ModTime())
	return age, age >= 0, nil
}

// set notes that the plugin is ready.
func (m readyMark) set(now time.Time) error {
	if _, err := (filesystem.Directory{Path: filepath.Dir(m.path)}).Write(filepath.Base(m.path), nil, filesystem.Options{}); err != nil {
		return err
	}
	return os.Chtimes(m.path, now, now)
}
