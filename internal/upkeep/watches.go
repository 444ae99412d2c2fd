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

// Watches are watched directories. A directory that was removed and made again needs a new watch, and so does one that appears late: Ensure
// is called after whatever may have done so. Make it with [NewWatches]; it is used by one goroutine.
type Watches struct {
	directories []string
	watcher     *fsnotify.Watcher
	failures    Series
	retryAt     time.Time // no attempt before; meaningless while all is watched
	err         error
}

// waiting is how many events may wait to be taken: whoever takes all of them at once is woken less often.
const waiting = 256

// NewWatches returns watches of directories, none of which needs to be there, before any is watched.
func NewWatches(directories ...string) *Watches {
	w := &Watches{failures: Failures()}
	w.Set(directories...)
	return w
}

// Set exchanges the directories. The next Ensure watches those that are new.
func (w *Watches) Set(directories ...string) {
	directories = slices.Clone(directories)
	for i, d := range directories {
		directories[i] = filepath.Clean(d) // as fsnotify calls it
	}
	slices.Sort(directories)
	directories = slices.Compact(directories)
	for _, old := range w.directories {
		if _, kept := slices.BinarySearch(directories, old); !kept && w.watcher != nil {
			w.watcher.Remove(old) //nolint:errcheck // it may be gone
		}
	}
	w.directories = directories
}

// Ensure watches every directory. After a failure it tries again when the pause is over, and says the same until then. Missed reports that
// there may have been changes without an event: a watch was missing, or still is.
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

// Retry is when to call Ensure again although nothing happens, if there is a reason to.
func (w *Watches) Retry() (at time.Time, ok bool) { return w.retryAt, w.err != nil }

// Soon has the next Ensure try again: a directory may be there now.
func (w *Watches) Soon() { w.retryAt = time.Time{} }

// add watches the directories that aren't. One that is, is left alone, though it may have been taken away and made again: the event that
// says so would get lost with its watch, and with it whatever came into the new one before it was watched.
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
	still := w.missing() // another path of a directory that is watched has no watch of its own
	added = slices.ContainsFunc(missing, func(d string) bool { return !slices.Contains(still, d) })
	return added, errors.Join(problems...)
}

// missing are the directories that aren't watched.
func (w *Watches) missing() []string {
	if w.watcher == nil {
		return nil
	}
	watched := w.watcher.WatchList()
	return slices.DeleteFunc(slices.Clone(w.directories), func(d string) bool { return slices.Contains(watched, d) })
}

// Events has the changes; nil before the first Ensure.
func (w *Watches) Events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

// Errors says when changes were lost, and may be told so; nil before the first Ensure.
func (w *Watches) Errors() chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

// Close ends all watches.
func (w *Watches) Close() {
	if w.watcher != nil {
		w.watcher.Close() //nolint:errcheck // nothing is lost with it
		w.watcher = nil
	}
}
