// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

const uninstallLong = `Uninstall removes what the daemon installed, in this order: the plugin's
entry in the CNI configuration, which is then byte for byte what it was (a single
configuration that had been made a list is given back); the kubeconfig; the
binary. Before the last two a note beside the binary says that the plugin was
uninstalled: a plugin that is still called lets the pod pass. The binary stays as long
as running pods need it to be removed, unless --purge is given. If the entry
can't be removed from a configuration that a runtime loads, all else stays, and
pods are still captured. It prints the outcome of each step.

In ambient mode, a daemon that is stopped for an uninstall takes the node's pods out
of the mesh before all of this. Without a daemon nothing can: if pods are still in the
mesh, a last step "ambient" fails, and says how many, and what to do. Pods that are
captured in their own namespaces have to be restarted. With ambient-mode=node, what is in
the node's namespace stays until a daemon in ambient mode runs again and "ambient
withdraw --all" is run, or the node is rebooted.

It runs in a process of its own, also after a crash, and continues after a step
that fails. A bad setting that says nothing about where to uninstall draws a
warning. It refuses to work while a daemon runs on the node; with --on-exit it
leaves the work to that daemon, which does it when it is stopped.

With --dry-run it says what it would do, and changes nothing.

Exit codes: 0 done (with --dry-run: reported), 1 a step failed, or pods are still in
the mesh, 2 wrong command line or setting.`

const uninstallExample = `  # on a node whose DaemonSet has gone
  install-cni uninstall

  # what would go, and what would stay?
  install-cni uninstall --dry-run

  # before the DaemonSet is deleted, as in a Helm hook
  install-cni uninstall --on-exit

  # and leave nothing; pods that were created with the plugin then can't be removed
  install-cni uninstall --purge`

func newUninstallCommand(env environment) *cobra.Command {
	var dry, purge, onExit bool
	command := &cobra.Command{
		Use:     "uninstall",
		Short:   "Remove what the daemon installed",
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
				return printWouldUninstall(command.Context(), env, format, node, loaded.Settings)
			}
			options := installer.UninstallOptions{Purge: purge, Progress: func(s installer.Step) { fmt.Fprintln(env.stdout, s) }}
			if format == formatTable {
				return runUninstall(command.Context(), env, node, loaded.Settings, log, options, onExit)
			}
			report := stepsReport{Steps: []step{}}
			options.Progress = func(s installer.Step) {
				report.Steps = append(report.Steps, step{Step: s.Name, Outcome: string(s.Outcome), Reason: s.Detail})
			}
			err = runUninstall(command.Context(), env, node, loaded.Settings, log, options, onExit)
			return printOutcome(env, report, err)
		},
	}
	command.Flags().BoolVar(&purge, "purge", false,
		"remove the binaries even if running pods need them for their removal, and the note that the plugin was uninstalled")
	command.Flags().BoolVar(&onExit, "on-exit", false,
		"if a daemon runs on the node, have it uninstall when it is stopped, and don't wait for that; for Helm's pre-delete hook")
	command.Flags().BoolVar(&dry, "dry-run", false, "say what would be done, and change nothing")
	addOutputFlag(command)
	return command
}

func printWouldUninstall(ctx context.Context, env environment, format string, node *installer.Installer, s settings.Settings) error {
	removals, err := node.InspectRemoval(env.watched(ctx))
	if err != nil {
		return err
	}
	report := stepsReport{DryRun: true, Steps: []step{}}
	for _, r := range removals {
		one := step{Step: "remove", File: r.Path, Reason: r.Reason}
		switch {
		case r.Kept:
			one.Step = "keep"
		case r.Edited:
			one.Step = "edit"
		}
		report.Steps = append(report.Steps, one)
	}
	captured, err := wouldLeave(s)
	if err != nil {
		return err
	}
	report.Steps = append(report.Steps, captured...)
	return printSteps(env, format, report)
}

// runUninstall undoes what a daemon did. With onExit, a running daemon does so when it is stopped.
func runUninstall(
	ctx context.Context, env environment, node *installer.Installer, s settings.Settings, log *slog.Logger, o installer.UninstallOptions,
	onExit bool,
) error {
	err := node.Uninstall(env.watched(ctx), o)
	if !errors.Is(err, installer.ErrInUse) {
		untaintLast(ctx, s, log)
		return finish(errors.Join(hint(err, s), reportLeft(s, o.Progress)), log)
	}
	if onExit {
		if err := node.RequestUninstall(env.watched(ctx)); err != nil {
			return err
		}
		log.Info("the daemon on this node will uninstall when it is stopped")
		return nil
	}
	return finish(hint(err, s), log)
}

// uninstallTime bounds the uninstall at the end of the daemon. After [daemonset.AskTime] it fits
// into the chart's 60 seconds of grace; of Kubernetes' default of 30, at least 15 remain for an
// uninstall, which takes one.
const uninstallTime = 20 * time.Second

// depart is the end of a daemon that was stopped: an upgrade, which must disturb nothing, or, for a
// reason, the end of the installation.
func (d *daemon) depart(ctx context.Context, reason string) error {
	if reason == "" {
		d.log.Info("stopping; everything stays in place for the next version")
		return nil
	}
	d.log.Info("uninstalling", "reason", reason)
	untaintLast(ctx, d.settings, d.log)
	if captured := leftReason(d.settings); captured != "" && d.ambient == nil {
		d.log.Warn("the uninstall leaves pods captured: restart those that are captured in their own namespaces", "reason", captured)
	}
	ending, cancel := context.WithTimeout(ctx, uninstallTime)
	defer cancel()
	err := d.installer.Uninstall(d.env.watched(ending), installer.UninstallOptions{Progress: func(s installer.Step) {
		d.log.Info("uninstall", "step", s.Name, "outcome", s.Outcome, "detail", s.Detail)
	}})
	if errors.Is(err, installer.ErrInUse) {
		d.log.Info("another daemon has taken over; everything stays in place for it")
		return nil
	}
	return finish(err, d.log)
}

// endOfInstallation returns why the installation ends with this process; empty if it does not.
func (d *daemon) endOfInstallation(ctx context.Context) (reason string) {
	s := d.settings
	switch {
	case !s.Install:
		return ""
	case s.UninstallOnExit:
		return "uninstall-on-exit is set"
	case s.Ambient.Enabled && s.Ambient.DisableSafeUpgrade:
		return "ambient-disable-safe-upgrade is set"
	case d.installer.UninstallRequested():
		return "install-cni uninstall --on-exit asked for it"
	case d.deletion == nil:
		return ""
	}
	return d.deletion.reason(ctx)
}

// finish logs or returns the result of an uninstall.
func finish(err error, log *slog.Logger) error {
	if err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	log.Info("uninstalled")
	return nil
}
