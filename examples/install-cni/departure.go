// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/daemonset"
	"github.com/meshcni/meshcni/examples/install-cni/internal/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/kubeconfig"
)

// uninstallTime bounds the uninstall at the end of the daemon; it fits into Kubernetes' default grace period of 30 seconds, behind askTime.
const (
	uninstallTime = 20 * time.Second
	askTime       = 8 * time.Second
)

// depart is the end of a daemon that was told to stop: an upgrade, of which nothing may be noticed, or the end of the installation.
func depart(ctx context.Context, s settings.Settings, node *installer.Installer, log *slog.Logger) error {
	ctx = context.WithoutCancel(ctx)
	reason, uninstalls := endOfInstallation(ctx, s, node, log)
	if !uninstalls {
		log.Info("told to stop; everything stays in place for the next version")
		return nil
	}
	log.Info("uninstalling", "reason", reason)
	ending, cancel := context.WithTimeout(ctx, uninstallTime)
	defer cancel()
	err := node.Uninstall(ending, installer.UninstallOptions{Tell: func(s installer.Step) {
		log.Info("uninstall", "step", s.Name, "outcome", s.Outcome, "detail", s.Detail)
	}})
	if errors.Is(err, installer.ErrInUse) {
		log.Info("another daemon has taken over; everything stays in place for it")
		return nil
	}
	return finish(err, log)
}

// endOfInstallation says why the installation ends with this process, if it does.
func endOfInstallation(ctx context.Context, s settings.Settings, node *installer.Installer, log *slog.Logger) (reason string, ends bool) {
	switch {
	case !s.Install:
		return "", false
	case s.UninstallOnExit:
		return "uninstall-on-exit is set", true
	case node.UninstallRequested():
		return "somebody asked for it by install-cni uninstall --on-exit", true
	case !s.UninstallOnDeletion:
		return "", false
	case s.PodNamespace == "" || s.AgentName == "":
		log.Debug("not asking whether the DaemonSet was deleted: its name isn't known; set pod-namespace and agent-name")
		return "", false
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	deleted, err := deleted(asking, s)
	if err != nil {
		log.Warn("everything stays in place: "+err.Error()+"; if it was, run install-cni uninstall on the node", "daemonset", s.Owner())
	}
	return "the DaemonSet " + s.Owner() + " was deleted", deleted
}

func deleted(ctx context.Context, s settings.Settings) (bool, error) {
	server, err := kubeconfig.ServerURL(s.APIProtocol, s.APIHost, s.APIPort)
	if err != nil {
		return false, fmt.Errorf("%w: %w", daemonset.ErrUnknown, err)
	}
	client := daemonset.Client{
		Server: server, TokenFile: filepath.Join(s.ServiceAccountDir, "token"), CAFile: s.CAFile, Insecure: s.SkipTLSVerify,
	}
	if client.CAFile == "" {
		client.CAFile = filepath.Join(s.ServiceAccountDir, "ca.crt")
	}
	return client.Deleted(ctx, s.PodNamespace, s.AgentName)
}

// finish says how an uninstall ended.
func finish(err error, log *slog.Logger) error {
	if err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	log.Info("uninstalled")
	return nil
}
