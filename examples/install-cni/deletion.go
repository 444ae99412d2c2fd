// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/daemonset"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// deletion learns whether the daemon's DaemonSet was deleted.
type deletion struct {
	client   daemonset.Client
	settings settings.Settings
	log      *slog.Logger
	renewed  chan struct{} // signals that the service account's token has changed
}

// newDeletion returns nil if the deletion makes no difference, or cannot be learned.
func newDeletion(s settings.Settings, now func() time.Time, log *slog.Logger) *deletion {
	if !s.Install || s.UninstallOnExit || !s.UninstallOnDeletion {
		return nil
	}
	client, err := newDaemonSetClient(s)
	if err != nil {
		log.Info("the daemon can't tell whether the DaemonSet was deleted; if it was, everything stays in place", "error", err)
		return nil
	}
	client.Memory, client.Now = &daemonset.Memory{}, now
	return &deletion{client, s, log, make(chan struct{}, 1)}
}

// newDaemonSetClient returns a client for the DaemonSet, with the pod's service account. The error
// is about the settings.
func newDaemonSetClient(s settings.Settings) (daemonset.Client, error) {
	account, err := newAccount(s)
	if s.PodNamespace == "" || s.AgentName == "" {
		err = errors.New("its name is unknown: set pod-namespace and agent-name")
	}
	return daemonset.Client{Account: account, Namespace: s.PodNamespace, Name: s.AgentName, Node: s.NodeName}, err
}

// part asks the API server for the DaemonSet from time to time, so that a deletion can be
// recognised, and calls worked after each answer. No other part waits for it.
func (d *deletion) part(worked func()) parts.Part {
	return parts.Part{Name: "daemonset", Auxiliary: true, Run: func(ctx context.Context, say func(string)) error {
		failures, said := upkeep.Failures(), ""
		for {
			err := d.client.Look(ctx)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the daemon is being stopped
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
				d.log.Warn("if the installation ends now, the plugin may stay on the node", "daemonset", d.settings.Owner(), "error", err)
			}
			said = reason
			say(reason)
			worked()
			if !d.wait(ctx, pause) {
				return nil
			}
		}
	}}
}

// wait waits for a while, or until the service account's token has changed. It returns false when
// the context ends.
func (d *deletion) wait(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
	case <-d.renewed:
	}
	return true
}

// hear remembers whether the installation's ConfigMap exists: only the end of the installation
// removes it.
func (d *deletion) hear(there bool) {
	switch word, changed := d.client.Memory.Hear(there); {
	case changed && word == daemonset.Removed:
		d.log.Info("the installation's ConfigMap was removed: if the API server then refuses to answer for the DaemonSet, the installation has ended",
			"configMap", d.settings.InstallationConfigMap)
	case changed:
		d.log.Debug("the installation's ConfigMap is there", "configMap", d.settings.InstallationConfigMap)
	}
}

// reason returns why the DaemonSet leaves this node; empty if it does not.
func (d *deletion) reason(ctx context.Context) string {
	asking, cancel := context.WithTimeout(ctx, daemonset.AskTime)
	defer cancel()
	evidence, err := d.client.Deleted(asking)
	if err != nil {
		d.log.Warn("everything stays in place: "+err.Error()+"; if it was, run install-cni uninstall on the node", "daemonset", d.settings.Owner())
		return ""
	}
	if evidence.Doubt != "" {
		d.log.Info(evidence.Doubt + "; if it doesn't, run install-cni uninstall on the node")
	}
	if !evidence.Deleted() {
		return ""
	}
	return "the DaemonSet " + d.settings.Owner() + " is leaving this node: " + evidence.What
}
