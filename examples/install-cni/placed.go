// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/mounts"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
)

// mounted is where the node's directories that are written to are mounted from, as of now.
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

// stayPut is the part that sees to it that these are the node's own still. When one isn't, the daemon ends, so that its container is started
// again: what it would go on to keep right is of no use to anybody, and the plugin is missing where the container runtime looks. There are no
// events to wait for: while a directory is mounted somewhere, the kernel doesn't tell that it was removed.
func (n *node) stayPut() parts.Part {
	return parts.Part{Name: "mounts", Run: func(ctx context.Context, say func(string)) error {
		tick := time.NewTicker(n.env.lookAround)
		defer tick.Stop()
		for {
			err := n.mounts.Moved()
			if errors.Is(err, mounts.ErrMoved) {
				n.end(err)
			}
			if err != nil {
				return err
			}
			say("")
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}}
}
