// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/apiserver"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/kubeconfig"
)

const (
	// taintAgain is how long after the taint was removed the daemon looks for it again: the node
	// may have been deleted and registered again.
	taintAgain = 10 * time.Minute
	// untaintTime bounds the last attempt, at an uninstall.
	untaintTime = 5 * time.Second
)

// newAccount returns the pod's service account. The error is about the settings.
func newAccount(s settings.Settings) (apiserver.Account, error) {
	server, err := kubeconfig.ServerURL(s.APIProtocol, s.APIHost, s.APIPort)
	return apiserver.Account{
		Server: server, TokenFile: filepath.Join(s.ServiceAccountDir, "token"), CAFile: s.CAPath(), Insecure: s.SkipTLSVerify,
	}, err
}

// taint is the part that removes the taint from the node as soon as the plugin is installed and
// verified. The taint is never set again: a daemon that is not ready for a moment keeps no pods
// away.
func (d *daemon) taint() parts.Part {
	return parts.Part{Name: "taint", Auxiliary: true, Run: func(ctx context.Context, say func(string)) error {
		for ctx.Err() == nil {
			if len(d.state.Reasons()) > 0 {
				say("the node isn't ready")
			}
			if d.state.AwaitReady(ctx) != nil {
				return nil
			}
			if err := untaint(ctx, d.settings, d.log); err != nil {
				return err
			}
			say("")
			select {
			case <-ctx.Done():
			case <-time.After(taintAgain):
			}
		}
		return nil
	}}
}

func untaint(ctx context.Context, s settings.Settings, log *slog.Logger) error {
	account, err := newAccount(s)
	if err != nil {
		return err
	}
	removed, err := apiserver.Taint{Account: account, Node: s.NodeName, Key: s.ReadinessTaint}.Remove(ctx)
	if removed {
		log.Info("took the taint off the node: pods may come", "node", s.NodeName, "taint", s.ReadinessTaint)
	}
	return err
}

// untaintLast is the last attempt before an uninstall: afterwards no process would remove the
// taint.
func untaintLast(ctx context.Context, s settings.Settings, log *slog.Logger) {
	if s.ReadinessTaint == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, untaintTime)
	defer cancel()
	if err := untaint(ctx, s, log); err != nil {
		log.Warn("the taint may be on the node still, and keep pods away", "error", err)
	}
}
