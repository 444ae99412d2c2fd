// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/daemon"
	"github.com/meshcni/meshcni/examples/install-cni/internal/daemonset"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// newDeletion returns the client that learns whether the DaemonSet was deleted; nil if it is not
// wanted, or not possible.
func newDeletion(s settings.Settings, now func() time.Time, log *slog.Logger) *daemonset.Client {
	if !s.Install || s.UninstallOnExit || !s.UninstallOnDeletion {
		return nil
	}
	client, err := newDaemonSetClient(s)
	if err != nil {
		log.Info("nobody can tell whether the DaemonSet was deleted: everything stays in place then", "error", err)
		return nil
	}
	client.Memory, client.Now = &daemonset.Memory{}, now
	return &client
}

// newDaemonSetClient returns a client for the DaemonSet, with the pod's service account. The error
// is about the settings.
func newDaemonSetClient(s settings.Settings) (daemonset.Client, error) {
	account, err := newAccount(s)
	if s.PodNamespace == "" || s.AgentName == "" {
		err = errors.New("its name isn't known; set pod-namespace and agent-name")
	}
	return daemonset.Client{Account: account, Namespace: s.PodNamespace, Name: s.AgentName, Node: s.NodeName}, err
}

// acquaint is the part that keeps up with the API server's answers about the DaemonSet while it is
// wanted, so that its deletion can be recognised. No other part waits for it.
func (n *node) acquaint() parts.Part {
	return parts.Part{Name: "daemonset", Auxiliary: true, Run: func(ctx context.Context, say func(string)) error {
		failures, said := upkeep.Failures(), ""
		for {
			err := n.deletion.Look(ctx)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // told to end
			}
			pause, reason := daemonset.Interval, ""
			if err != nil {
				reason = err.Error()
			}
			if err != nil && !errors.Is(err, daemonset.ErrRefused) {
				pause = failures.Next(time.Now())
				pause = pause/2 + rand.N(pause/2)
			} else {
				failures.Reset()
			}
			if reason != "" && reason != said {
				n.log.Warn("if the installation ends now, the plugin may stay on the node", "daemonset", n.settings.Owner(), "error", err)
			}
			said = reason
			say(reason)
			n.memory.Worked()
			if !n.wait(ctx, pause) {
				return nil
			}
		}
	}}
}

// wait waits for a while, or until the service account's token has changed. It returns false when
// the context ends.
func (n *node) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-n.renewed:
	}
	return true
}

// renewing is the part that writes the plugin's kubeconfig; it signals when that has changed.
type renewing struct {
	daemon.Part
	node *node
}

// Pace limits how often the part writes.
func (r renewing) Pace() upkeep.Bucket { return upkeep.PaceOf(r.Part) }

func (r renewing) Ensure(ctx context.Context) (upkeep.Outcome, error) {
	outcome, err := r.Part.Ensure(ctx)
	if outcome != upkeep.Right {
		r.node.memory.Worked()
		nudge(r.node.renewed)
	}
	return outcome, err
}

// uninstallTime bounds the uninstall at the end of the daemon. After [daemonset.AskTime] it fits
// into the chart's 45 seconds of grace; of Kubernetes' default of 30, at least 15 remain for an
// uninstall, which takes one.
const uninstallTime = 20 * time.Second

// depart is the end of a daemon that was stopped: an upgrade, which must disturb nothing, or, for a
// reason, the end of the installation.
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

// endOfInstallation returns why the installation ends with this process; empty if it does not.
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

// finish logs or returns the result of an uninstall.
func finish(err error, log *slog.Logger) error {
	if err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	log.Info("uninstalled")
	return nil
}
