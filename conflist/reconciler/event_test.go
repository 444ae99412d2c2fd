// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"errors"
	"testing"
	"time"

	"github.com/meshcni/meshcni/conflist/reconciler"
)

// An event is a line for a log.
func TestEventsAsText(t *testing.T) {
	t.Parallel()
	by := reconciler.Culprit{Name: "calico", Evidence: "it says so"}
	plan := reconciler.Plan{File: "a.conflist", Change: &reconciler.Change{Cause: reconciler.Fresh, File: "a.conflist"}}
	for want, event := range map[string]reconciler.Event{
		"installed in a.conflist (fresh)": reconciler.Installed{Plan: plan},
		"installed in b.conflist":         reconciler.Installed{Plan: reconciler.Plan{File: "b.conflist"}},
		"restored in a.conflist, 2 times in this series; undone by " + by.String(): reconciler.Restored{File: "a.conflist", By: by, Count: 2},
		by.String() + " keeps undoing it in a.conflist: 9 times in this series, put back in 1m0s": reconciler.Fighting{
			File: "a.conflist", By: by, Count: 9, Pause: time.Minute,
		},
		"another program keeps changing the configurations that a.conflist follows: 1 times in this series, put back in 1s": reconciler.Fighting{
			File: "a.conflist", Count: 1, Pause: time.Second,
		},
		"not in place: no list":                                              reconciler.Waiting{Err: errors.New("no list")},
		"reading or writing failed, tried again in 1s: full":                 reconciler.Failed{Err: errors.New("full"), Pause: time.Second},
		"in place in a.conflist":                                             reconciler.Settled{Plan: plan},
		"changes are seen again":                                             reconciler.Unwatched{},
		"changes are not seen, and looked for from time to time: no inotify": reconciler.Unwatched{Err: errors.New("no inotify")},
	} {
		if got := event.String(); got != want {
			t.Errorf("%T is %q, want %q", event, got, want)
		}
	}
}
