// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"github.com/meshcni/meshcni/examples/install-cni/internal/mounts"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
)

// mounted returns where the node's directories that the daemon writes to are mounted from now.
func (d *daemon) mounted() *mounts.Mounts {
	directories := []string{d.settings.RunDir}
	if d.settings.Install {
		directories = append(directories, d.settings.NetDir, d.settings.BinDir)
	}
	m, err := mounts.New(mounts.Table, directories...)
	if err != nil {
		d.log.Warn("the daemon can't tell when a directory of the node is moved away", "error", err)
	}
	return m
}

// stayPut is the part that ends the daemon if a mounted directory is no longer the node's, so that
// its container is restarted.
func (d *daemon) stayPut() parts.Part {
	return parts.Part{Name: "mounts", Run: func(ctx context.Context, say func(string)) error {
		err := d.mounts.Watch(ctx, d.env.lookAround, say)
		if errors.Is(err, mounts.ErrMoved) {
			d.end(err)
		}
		return err
	}}
}
