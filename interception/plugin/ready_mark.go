// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
)

const (
	// unreadyFor is how long STATUS may say so. An agent that can't start before STATUS is content gets a chance then.
	unreadyFor = 10 * time.Minute
	// readyFor is how long an answer of the API server counts: a runtime asks every five seconds, on every node.
	readyFor = 30 * time.Second
)

// mark is a file in the run directory, which a reboot clears, whose age says since when something is so.
type mark struct{ path string }

// readyMark says that the plugin was ready once, and when it last was.
func (c config) readyMark() mark { return mark{filepath.Join(c.RunDir, c.plugin+".ready")} }

// askedMark says since when strict has had nothing to say but that it isn't.
func (c config) askedMark() mark { return mark{filepath.Join(c.RunDir, c.plugin+".asked")} }

// age is how long ago the mark was set; it never was without the file, nor in the future.
func (m mark) age(now time.Time) (age time.Duration, found bool, err error) {
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

// set notes that it is now.
func (m mark) set(now time.Time) error {
	if _, err := (filesystem.Directory{Path: filepath.Dir(m.path)}).Write(filepath.Base(m.path), nil, filesystem.Options{}); err != nil {
		return err
	}
	return os.Chtimes(m.path, now, now)
}
