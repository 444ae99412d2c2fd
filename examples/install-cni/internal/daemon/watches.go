// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watches are the watched directories. A directory that was removed and made again needs a new watch, and so does one that appears late.
type watches struct {
	directories []string
	watcher     *fsnotify.Watcher
	failures    backoff
	retryAt     time.Time // no attempt before; meaningless while all is watched
	tried       bool      // the last ensure did try
	err         error
}

func newWatches(directories []string) *watches {
	return &watches{directories: directories, failures: failures()}
}

// ensure watches every directory. After a failure it tries again when the pause is over, and says the same until then.
func (w *watches) ensure(now time.Time) error {
	w.tried = !now.Before(w.retryAt)
	if !w.tried {
		return w.err
	}
	if w.err = w.add(); w.err != nil {
		w.retryAt = now.Add(w.failures.next(now))
		return w.err
	}
	w.failures.reset()
	return nil
}

// retry is when to try again, if there is a reason to.
func (w *watches) retry() (at time.Time, ok bool) { return w.retryAt, w.err != nil }

func (w *watches) add() error {
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return fmt.Errorf("start watching: %w; raise the node's fs.inotify.max_user_instances", err)
		}
		w.watcher = watcher
	}
	var problems []error
	for _, directory := range w.directories {
		err := w.watcher.Add(directory)
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w; raise the node's fs.inotify.max_user_watches", err)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("watch %s: %w", directory, err))
		}
	}
	return errors.Join(problems...)
}

func (w *watches) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *watches) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

func (w *watches) close() {
	if w.watcher != nil {
		w.watcher.Close() //nolint:errcheck // nothing is lost with it
	}
}
