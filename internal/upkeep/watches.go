// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watches are watched directories. A directory that was removed and recreated needs a new watch,
// and so does one that appears late: call Ensure after anything that may have done so. Create
// Watches with [NewWatches]; only one goroutine may use them.
type Watches struct {
	directories []string
	watcher     *fsnotify.Watcher
	failures    Series
	retryAt     time.Time // no attempt before; meaningless while everything is watched
	err         error
}

// waiting is the number of buffered events: taking all at once saves wake-ups.
const waiting = 256

// NewWatches returns watches of directories, which may be missing, before any is watched.
func NewWatches(directories ...string) *Watches {
	w := &Watches{failures: Failures()}
	w.Set(directories...)
	return w
}

// Set replaces the directories. The next Ensure watches the new ones.
func (w *Watches) Set(directories ...string) {
	directories = slices.Clone(directories)
	for i, d := range directories {
		directories[i] = filepath.Clean(d) // as in fsnotify's events
	}
	slices.Sort(directories)
	directories = slices.Compact(directories)
	for _, old := range w.directories {
		if _, kept := slices.BinarySearch(directories, old); !kept && w.watcher != nil {
			w.watcher.Remove(old) //nolint:errcheck // the directory may be gone
		}
	}
	w.directories = directories
}

// Ensure watches every directory. After a failure it tries again when the pause is over, and
// returns the same error until then. Missed reports that there may have been changes without an
// event: a watch was missing, or still is.
func (w *Watches) Ensure(now time.Time) (missed bool, err error) {
	if now.Before(w.retryAt) {
		return false, w.err
	}
	failing := w.err != nil
	added, err := w.add()
	if w.err = err; err != nil {
		w.retryAt = now.Add(w.failures.Next(now))
		return true, w.err
	}
	w.failures.Reset()
	return failing || added, nil
}

// Retry returns when to call Ensure again although nothing happens, if there is a reason to.
func (w *Watches) Retry() (at time.Time, ok bool) { return w.retryAt, w.err != nil }

// Soon makes the next Ensure try again: a directory may exist now.
func (w *Watches) Soon() { w.retryAt = time.Time{} }

// add watches the directories without a watch. It keeps existing watches, even if the directory may
// have been removed and recreated. Otherwise the event that reports this would be lost with the
// watch, and with it the changes in the new directory before it was watched.
func (w *Watches) add() (added bool, err error) {
	if w.watcher == nil && len(w.directories) > 0 {
		watcher, err := fsnotify.NewBufferedWatcher(waiting)
		if err != nil {
			return false, fmt.Errorf("start watching: %w; raise the node's fs.inotify.max_user_instances", err)
		}
		w.watcher = watcher
	}
	var problems []error
	missing := w.missing()
	for _, directory := range missing {
		err := w.watcher.Add(directory)
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w; raise the node's fs.inotify.max_user_watches", err)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("watch %s: %w", directory, err))
		}
	}
	still := w.missing() // a second path of a watched directory has no watch of its own
	added = slices.ContainsFunc(missing, func(d string) bool { return !slices.Contains(still, d) })
	return added, errors.Join(problems...)
}

func (w *Watches) missing() []string {
	if w.watcher == nil {
		return nil
	}
	watched := w.watcher.WatchList()
	return slices.DeleteFunc(slices.Clone(w.directories), func(d string) bool { return slices.Contains(watched, d) })
}

// Events returns the channel of changes, nil before the first Ensure.
func (w *Watches) Events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

// Errors reports lost changes, and callers may send to it; nil before the first Ensure.
func (w *Watches) Errors() chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

// Close ends all watches.
func (w *Watches) Close() {
	if w.watcher != nil {
		w.watcher.Close() //nolint:errcheck // it holds nothing that could be lost
		w.watcher = nil
	}
}
