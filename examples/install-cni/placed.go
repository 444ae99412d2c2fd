// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/mounts"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// mounted returns where the node's directories that the daemon writes to are mounted from now.
func (n *node) mounted() *mounts.Mounts {
	directories := []string{n.settings.RunDir}
	if n.settings.Install {
		directories = append(directories, n.settings.NetDir, n.settings.BinDir)
	}
	m, err := mounts.New(mounts.Table, directories...)
	if err != nil {
		n.log.Warn("nobody can tell when a directory of the node is moved away", "error", err)
	}
	return m
}

// stayPut is the part that checks that the mounted directories are still the node's. If one is not,
// the daemon ends, so that its container is restarted: it would maintain a directory that no
// program reads, while the plugin is missing where the container runtime looks.
//
// Removing a directory removes its content first, and moving it moves what is watched. So the part
// looks after such events, and once more later. It polls only if there would be no events.
func (n *node) stayPut() parts.Part {
	return parts.Part{Name: "mounts", Run: func(ctx context.Context, say func(string)) error {
		watches := upkeep.NewWatches(n.mounts.Directories()...)
		defer watches.Close()
		later := laterLook * n.env.lookAround
		looks, soon := 1, true
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			_, unwatched := watches.Ensure(time.Now())
			select {
			case <-ctx.Done():
				return nil
			case <-watches.Events():
			case <-watches.Errors(): //nolint:errcheck // events were lost, which is as good as one
			case <-timer.C:
				if err := n.stillThere(); err != nil {
					return err
				}
				say("")
				soon = false
				if looks--; looks > 0 || unwatched != nil || n.mounts.Silent() {
					timer.Reset(later)
				}
				continue
			}
			looks = 2
			if !soon {
				soon = true
				timer.Reset(n.env.lookAround)
			}
		}
	}}
}

// laterLook is how many times later than the first look the second one is.
const laterLook = 10

// stillThere ends the daemon if a directory was moved.
func (n *node) stillThere() error {
	err := n.mounts.Moved()
	if errors.Is(err, mounts.ErrMoved) {
		n.end(err)
	}
	return err
}
