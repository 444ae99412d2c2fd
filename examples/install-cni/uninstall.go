// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

const uninstallLong = `Uninstall takes away what the daemon installed, in this order: the plugin's
entry in the CNI configuration, which is then byte for byte what it was (a single
configuration that had been made a list is given back); the kubeconfig; the
binary. Before the last two a note beside the binary says that the plugin was
uninstalled: who is called once more lets the pod pass. The binary stays as long
as running pods need it to be removed, unless --purge is given. If the entry
can't be taken out of a configuration that a runtime loads, all else stays, and
pods go on being captured. It prints what became of each step.

It works in a process of its own, also after a crash, and goes on after a step
that fails. A bad setting that says nothing about where to uninstall draws a
warning. It refuses to work while a daemon runs on the node; with --on-exit it
leaves the work to that daemon, which does it when it is told to stop.

With --dry-run it says what it would do, and changes nothing.

Exit codes: 0 done (with --dry-run: was told), 1 a step failed, 2 wrong command
line or setting.`

const uninstallExample = `  # on a node whose DaemonSet has gone
  install-cni uninstall

  # what would go, and what would stay?
  install-cni uninstall --dry-run

  # before the DaemonSet is deleted, as in a Helm hook
  install-cni uninstall --on-exit

  # and nothing of it shall stay; pods that were made with the plugin then fail to be removed
  install-cni uninstall --purge`

func newUninstallCommand(env environment) *cobra.Command {
	var dry, purge, onExit bool
	command := &cobra.Command{
		Use:     "uninstall",
		Short:   "Take away what the daemon installed",
		Long:    uninstallLong,
		Example: uninstallExample,
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			format, err := outputFormat(command)
			if err != nil {
				return err
			}
			loaded, warnings, err := settings.LoadForUninstall(command, env.environ)
			if err != nil {
				return &usageError{err}
			}
			log, _ := newLog(env, loaded)
			for _, warning := range warnings {
				log.Warn("a setting that an install would refuse; uninstalling without it", "error", warning)
			}
			node, err := env.installer(log, loaded.Settings)
			if err != nil {
				return &usageError{err}
			}
			if dry {
				return printWouldUninstall(command.Context(), env, format, node)
			}
			options := installer.UninstallOptions{Purge: purge, Tell: func(s installer.Step) { fmt.Fprintln(env.stdout, s) }}
			if format == formatTable {
				return runUninstall(command.Context(), env, node, loaded.Settings, log, options, onExit)
			}
			report := stepsReport{Steps: []step{}}
			options.Tell = func(s installer.Step) {
				report.Steps = append(report.Steps, step{Step: s.Name, Outcome: string(s.Outcome), Reason: s.Detail})
			}
			err = runUninstall(command.Context(), env, node, loaded.Settings, log, options, onExit)
			return printOutcome(env, report, err)
		},
	}
	command.Flags().BoolVar(&purge, "purge", false,
		"take away the binaries even if running pods need them to be removed, and the note that the plugin was uninstalled")
	command.Flags().BoolVar(&onExit, "on-exit", false,
		"if a daemon runs on the node, have it uninstall when it is told to stop, and don't wait for that; for Helm's pre-delete hook")
	command.Flags().BoolVar(&dry, "dry-run", false, "say what would be done, and change nothing")
	addOutputFlag(command)
	return command
}

func printWouldUninstall(ctx context.Context, env environment, format string, node *installer.Installer) error {
	removals, err := node.InspectRemoval(env.watched(ctx))
	if err != nil {
		return err
	}
	report := stepsReport{DryRun: true, Steps: []step{}}
	for _, r := range removals {
		s := step{Step: "remove", File: r.Path, Reason: r.Reason}
		switch {
		case r.Kept:
			s.Step = "keep"
		case r.Edited:
			s.Step = "edit"
		}
		report.Steps = append(report.Steps, s)
	}
	return printSteps(env, format, report)
}

const retireLong = `Retire ends the installation on all nodes: it deletes the DaemonSet, and waits
until its pods have ended. Each daemon, told to stop, finds its DaemonSet being
deleted, and uninstalls; nothing that it needs for that, its role and its service
account, may be deleted earlier. That is what the chart has a Job for.

It works on no node and needs no mounts, but a service account that may get and
delete the DaemonSet. What a daemon could not take away is in its own log.

Exit codes: 0 done, or there is no such DaemonSet; 1 it or a pod of it is still
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
