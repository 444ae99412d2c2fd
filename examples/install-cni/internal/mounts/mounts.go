// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// Table is the kernel's list of a process's mounts.
const Table = "/proc/self/mountinfo"

// maxTable bounds what is read of the table: a node with ten thousand mounts has some MiB.
const maxTable = 32 << 20

// ErrMoved is in the error for a directory that was replaced on the node.
var ErrMoved = errors.New("moved away or removed on the node, and what has its name there is not mounted here")

// Mounts knows where directories were mounted from when it was created. Create it with [New]; it is
// safe for concurrent use.
type Mounts struct {
	table string
	known []mounted
}

// mounted is a directory, and the mount that it is in.
type mounted struct {
	directory string
	mount
}

// mount is one line of the table: which part of a file system is visible at which path. Numbers are
// unique among existing mounts.
type mount struct{ number, root, point string }

// New records where directories are mounted from. It skips missing ones. The error is about the
// table.
func New(table string, directories ...string) (*Mounts, error) {
	all, err := read(table)
	if err != nil {
		return &Mounts{table: table}, err
	}
	m := &Mounts{table: table}
	for _, directory := range directories {
		if path, err := filepath.EvalSymlinks(directory); err == nil && filepath.IsAbs(path) {
			m.known = append(m.known, mounted{directory, of(path, all)})
		}
	}
	return m, nil
}

// Moved compares with the state at New. The error names the first directory that was replaced on
// the node, and wraps [ErrMoved].
func (m *Mounts) Moved() error {
	if len(m.known) == 0 {
		return nil
	}
	all, err := read(m.table)
	if err != nil {
		return err
	}
	for _, before := range m.known {
		for _, now := range all {
			if now.number != before.number || now.point != before.point || now.root == before.root {
				continue
			}
			return fmt.Errorf("%s: the directory that is mounted here was %w (%s was %s, and is %s); the container has to be started again",
				before.directory, ErrMoved, before.point, before.root, now.root)
		}
	}
	return nil
}

// Watch calls [Mounts.Moved] again and again, and returns its error. It returns nil when ctx ends.
// It calls say with "" whenever no directory has moved.
//
// Removing a directory removes its content first, and moving a directory moves what is watched. So
// Watch looks when the given time has passed after such an event, and once more much later. It
// polls only if a removal may cause no event.
func (m *Mounts) Watch(ctx context.Context, after time.Duration, say func(string)) error {
	directories := make([]string, len(m.known))
	for i, known := range m.known {
		directories[i] = known.directory
	}
	watches := upkeep.NewWatches(directories...)
	defer watches.Close()
	looks, soon := 1, true
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		_, unwatched := watches.Ensure(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-watches.Events():
		case <-watches.Errors(): //nolint:errcheck // lost events count as an event
		case <-timer.C:
			if err := m.Moved(); err != nil {
				return err
			}
			say("")
			soon = false
			if looks--; looks > 0 || unwatched != nil || m.silent() {
				timer.Reset(laterLook * after)
			}
			continue
		}
		looks = 2
		if !soon {
			soon = true
			timer.Reset(after)
		}
	}
}

// laterLook is how many times later than the first look the second one is.
const laterLook = 10

// silent reports whether a directory may be removed, or already was, without an event. The removal
// of a directory causes none as long as it is mounted somewhere, and in an empty one there is no
// content whose removal would. A removed directory can't be read.
func (m *Mounts) silent() bool {
	for _, known := range m.known {
		if entries, err := os.ReadDir(known.directory); err != nil || len(entries) == 0 {
			return true
		}
	}
	return false
}

// of returns the mount that a path is in: the one at the longest path above it, and of several at
// the same path the last, which covers the others.
func of(path string, all []mount) (found mount) {
	for _, m := range all {
		above := path == m.point || m.point == "/" || strings.HasPrefix(path, m.point+"/")
		if above && len(m.point) >= len(found.point) {
			found = m
		}
	}
	return found
}

func read(path string) ([]mount, error) {
	data, err := filesystem.ReadThroughLinks(path, maxTable)
	if err != nil {
		return nil, fmt.Errorf("look what is mounted: %w", err)
	}
	plain := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var all []mount
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			all = append(all, mount{fields[0], fields[3], plain.Replace(fields[4])})
		}
	}
	return all, nil
}
