// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/meshcni/meshcni/examples/install-cni/internal/daemon"
	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/install-cni/internal/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/live"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

// runDaemon installs and keeps installed until it is told to stop.
func runDaemon(ctx context.Context, env environment, loaded settings.Loaded, log *slog.Logger, level *slog.LevelVar) error {
	s := loaded.Settings
	node, state := installer.New(s, env.installer(log)), health.NewState()
	current := live.New(loaded, log, env.files, func(s settings.Settings) {
		level.Set(s.LogLevel)
		node.Use(s)
	})
	parts := []daemon.Part{current}
	if s.Install {
		parts = append(parts, node.Binaries(), node.Kubeconfig(), node.Config())
	}
	keeper := daemon.New(state, log, parts...)

	listener, err := env.listen(ctx, "tcp", s.HealthAddress)
	if err != nil {
		return fmt.Errorf("serve health on %s: %w; set health-address to one that is free", s.HealthAddress, err)
	}
	log.Info("started", "version", env.version, "owner", s.Owner(), "health", listener.Addr().String())
	working, stop := context.WithCancelCause(ctx)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := health.Serve(working, listener, state.Handler()); err != nil {
			stop(fmt.Errorf("serve health on %s: %w", listener.Addr(), err))
		}
	}()
	defer func() { stop(nil); <-served }()

	release, err := node.Attend(working)
	if err == nil {
		keeper.Run(working)
		release()
	}
	switch {
	case ctx.Err() == nil && working.Err() != nil:
		return context.Cause(working)
	case ctx.Err() == nil:
		return err
	}
	return depart(ctx, s, node, log)
}

// runUninstall undoes what a daemon did. With onExit, a daemon that is there does so when it is told to stop.
func runUninstall(
	ctx context.Context, env environment, s settings.Settings, log *slog.Logger, o installer.UninstallOptions, onExit bool,
) error {
	node := installer.New(s, env.installer(log))
	err := node.Uninstall(ctx, o)
	if onExit && errors.Is(err, installer.ErrInUse) {
		if err := node.RequestUninstall(); err != nil {
			return err
		}
		log.Info("the daemon on this node uninstalls when it is told to stop")
		return nil
	}
	return finish(err, log)
}
