// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

const retireLong = `Retire ends the installation on all nodes: it deletes the DaemonSet, and waits
until its pods have ended. Each daemon, when stopped, finds its DaemonSet being
deleted, and uninstalls. What it needs for that, its role and its service
account, must exist until then. The chart has a Job for this.

It touches no node and needs no mounts, but a service account that may get and
delete the DaemonSet. What a daemon could not remove is in its own log.

Exit codes: 0 done, or there is no such DaemonSet; 1 it or one of its pods is still
there; 2 wrong command line or setting.`

// retireTime is the default limit for a retirement: several times a daemon's grace period.
const retireTime = 4 * time.Minute

func newRetireCommand(env environment) *cobra.Command {
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "retire",
		Short: "Delete the DaemonSet, so that it uninstalls on all nodes",
		Long:  retireLong,
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			loaded, err := settings.Load(command, env.environ)
			if err != nil {
				return &usageError{err}
			}
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			return retire(ctx, env, loaded.Settings)
		},
	}
	command.Flags().DurationVar(&timeout, "timeout", retireTime, "how long to wait at most")
	return command
}

func retire(ctx context.Context, env environment, s settings.Settings) error {
	client, err := newDaemonSetClient(s)
	if err != nil {
		return &usageError{fmt.Errorf("retire the DaemonSet: %w", err)}
	}
	begin := env.now()
	if err := client.Delete(ctx); err != nil {
		return fmt.Errorf("retire %s: %w", s.Owner(), err)
	}
	fmt.Fprintf(env.stdout, "%s is deleted, its pods have ended, after %v\n", s.Owner(), env.now().Sub(begin).Round(time.Millisecond))
	return nil
}
