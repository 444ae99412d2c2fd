// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/daemonset"
)

// uninstallTime bounds the uninstall at the end of the daemon. After [daemonset.AskTime] it fits into the 45 seconds of grace that the chart
// gives; of Kubernetes' own 30 at least 15 are left for an uninstall, which takes one.
const uninstallTime = 20 * time.Second

// depart is the end of a daemon that was told to stop: an upgrade, of which nothing may be noticed, or the end of the installation, for a
// reason.
func (n *node) depart(ctx context.Context, reason string) error {
	if reason == "" {
		n.log.Info("told to stop; everything stays in place for the next version")
		return nil
	}
	n.log.Info("uninstalling", "reason", reason)
	untaintLast(ctx, n.settings, n.log)
	ending, cancel := context.WithTimeout(ctx, uninstallTime)
	defer cancel()
	err := n.installer.Uninstall(n.env.watched(ending), installer.UninstallOptions{Tell: func(s installer.Step) {
		n.log.Info("uninstall", "step", s.Name, "outcome", s.Outcome, "detail", s.Detail)
	}})
	if errors.Is(err, installer.ErrInUse) {
		n.log.Info("another daemon has taken over; everything stays in place for it")
		return nil
	}
	return finish(err, n.log)
}

// endOfInstallation says why the installation ends with this process; empty when it doesn't.
func (n *node) endOfInstallation(ctx context.Context) (reason string) {
	s := n.settings
	switch {
	case !s.Install:
		return ""
	case s.UninstallOnExit:
		return "uninstall-on-exit is set"
	case n.installer.UninstallRequested():
		return "somebody asked for it by install-cni uninstall --on-exit"
	case n.deletion == nil:
		return ""
	}
	asking, cancel := context.WithTimeout(ctx, daemonset.AskTime)
	defer cancel()
	evidence, err := n.deletion.Deleted(asking)
	if err != nil {
		n.log.Warn("everything stays in place: "+err.Error()+"; if it was, run install-cni uninstall on the node", "daemonset", s.Owner())
		return ""
	}
	if evidence.Doubt != "" {
		n.log.Info(evidence.Doubt + "; if it doesn't, run install-cni uninstall on the node")
	}
	if !evidence.Deleted() {
		return ""
	}
	return "the DaemonSet " + s.Owner() + " is to leave this node: " + evidence.What
}

// finish says how an uninstall ended.
func finish(err error, log *slog.Logger) error {
	if err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	log.Info("uninstalled")
	return nil
}
