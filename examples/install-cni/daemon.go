// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/examples/install-cni/internal/agent"
	"github.com/meshcni/meshcni/examples/install-cni/internal/ambientpart"
	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/install-cni/internal/installed"
	"github.com/meshcni/meshcni/examples/install-cni/internal/metrics"
	"github.com/meshcni/meshcni/examples/install-cni/internal/mounts"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/examples/install-cni/internal/watcher"
	"github.com/meshcni/meshcni/internal/footprint"
)

// daemon is what the parts on one node share.
type daemon struct {
	env       environment
	settings  settings.Settings // of the start
	log       *slog.Logger
	live      *settings.Live
	installer *installer.Installer
	state     *health.State
	metrics   *metrics.Metrics
	memory    *footprint.Trimmer
	mounts    *mounts.Mounts          // of the node's directories
	end       context.CancelCauseFunc // ends all parts, if only a new process helps
	kept      chan struct{}           // signals that this daemon has taken the node
	deletion  *deletion               // nil if the API server is not to be asked
	pods      *podWatch               // nil if no pods are watched
	ambient   *ambientMode            // nil unless ambient mode is on

	supervisor *parts.Supervisor
}

// runDaemon runs all parts until it is stopped.
func runDaemon(ctx context.Context, env environment, loaded settings.Loaded, log *slog.Logger, level *slog.LevelVar) error {
	d, err := assemble(env, loaded, log, level)
	if err != nil {
		return &usageError{err}
	}
	// This comes first: a daemon that cannot report the node's state is useless, and the port is a
	// setting.
	listener, err := env.listen(ctx, "tcp", d.settings.HealthAddress)
	if err != nil {
		return fmt.Errorf("serve health on %s: %w; set health-address to one that is free", d.settings.HealthAddress, err)
	}
	log.Info("started", "version", env.version, "owner", d.settings.Owner(), "health", listener.Addr().String())
	defer d.memory.Stop()
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	d.end = stop
	var reason string
	// The parts go on until it is known what happens to the node.
	context.AfterFunc(ctx, func() {
		defer stop(nil)
		if reason = d.endOfInstallation(working); reason != "" {
			d.withdraw(working)
		}
	})
	d.supervise(listener).Run(working)
	if err := context.Cause(working); errors.Is(err, mounts.ErrMoved) {
		return err
	}
	return d.depart(context.WithoutCancel(ctx), reason)
}

func assemble(env environment, loaded settings.Loaded, log *slog.Logger, level *slog.LevelVar) (*daemon, error) {
	s, state := loaded.Settings, health.NewState()
	state.LookWithin = env.lookWithin
	state.LogTo(log)
	d := &daemon{env: env, settings: s, log: log, state: state, kept: make(chan struct{}, 1)}
	d.deletion = newDeletion(s, env.now, log)
	d.memory = footprint.NewTrimmer(footprint.Options{Quiet: env.trimAfter, Trim: env.trim, Log: log})
	var err error
	if d.pods, err = newPodWatch(env, s, log, level, d.deletion); err != nil {
		return nil, err
	}
	how := env.installation(log, s)
	if err := d.newInstaller(how.options(s)); err != nil {
		return nil, err
	}
	d.mounts = d.mounted()
	d.live = settings.NewLive(loaded, log, env.files, func(s settings.Settings) {
		level.Set(s.LogLevel)
		if err := d.installer.Use(how.options(s)); err != nil {
			log.Error("new settings are refused; the old ones stay", "error", err)
		}
		d.useInRepair(s)
		d.useInAmbientMode(s)
	})
	d.metrics = metrics.New(env.version, state)
	d.metrics.Token(filepath.Join(s.ServiceAccountDir, "token"), env.now)
	d.metrics.Claim(d.installer.ClaimState)
	if d.pods != nil {
		d.metrics.Server(d.pods.Server)
		d.metrics.Repair(d.pods.Repair)
	}
	return d, d.prepareAmbientMode(level)
}

// prepareAmbientMode makes the parts of ambient mode, if the settings ask for it.
func (d *daemon) prepareAmbientMode(level *slog.LevelVar) (err error) {
	if !d.settings.Ambient.Enabled {
		return nil
	}
	counts := d.metrics.Ambient(func() *ambientpart.State { return d.ambient.State() })
	d.ambient, err = newAmbientMode(d.env, d.settings, d.log, level, ambientpart.Options{
		OnRequest: counts.Request, OnFailure: counts.Failed, OnCount: counts.Count,
	})
	return err
}

// useInRepair applies settings that have changed.
func (d *daemon) useInRepair(s settings.Settings) {
	if d.pods == nil {
		return
	}
	changed, err := d.pods.use(s)
	if err != nil {
		d.log.Error("new settings are refused; the old ones stay in repair", "error", err)
	}
	if changed {
		d.supervisor.Restart(watcher.PartName, "the settings of repair have changed")
	}
}

// useInAmbientMode applies settings that have changed.
func (d *daemon) useInAmbientMode(s settings.Settings) {
	if d.ambient == nil {
		return
	}
	changed, err := d.ambient.use(s)
	if err != nil {
		d.log.Error("new settings are refused; the old ones stay in ambient mode", "error", err)
	}
	if changed {
		d.supervisor.Restart(ambientpart.PartName, "its settings have changed")
	}
}

// newInstaller creates the installer, which reports restored changes and that this daemon has taken
// the node.
func (d *daemon) newInstaller(o installer.Options) (err error) {
	o.OnRestore = func(c reconciler.Change) { d.metrics.Restored(c.By.Name) }
	o.OnTake = func() { nudge(d.kept) }
	d.installer, err = installer.New(o)
	return err
}

// nudge signals news, unless a signal is pending already.
func nudge(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default:
	}
}

// supervise returns a supervisor with all parts that the settings ask for.
func (d *daemon) supervise(healthListener net.Listener) *parts.Supervisor {
	a := &agent.Agent{
		RunDir: d.settings.RunDir, Version: d.env.version, Log: d.log, Now: d.env.now, Observer: working{d.metrics, d.memory},
		Instance: rand.Text(), Keeps: d.installer.Keeps, Kept: d.kept,
		Restart: func(part, why string) { d.supervisor.Restart(part, why) },
	}
	var all []parts.Part
	if d.pods != nil {
		a.Pods, all = d.pods, append(all, d.pods.Part())
	}
	if d.settings.Repair.Enabled && (d.pods != nil || d.settings.Repair.WantsInPlace()) {
		all = append(all, shortfalls(d.settings, d.log, d.pods))
	}
	if d.ambient != nil {
		all = append(all, d.ambient.Part(), d.ambient.ProxyPart())
	} else {
		all = append(all, leftCaptured(d.settings, d.log))
	}
	if d.deletion != nil {
		all = append(all, d.deletion.part(d.memory.Worked))
	}
	all = append(all,
		d.stayPut(),
		d.install(),
		a.Socket(),
		a.IstioLog(),
		a.Spool(),
		d.serve("health", d.settings.HealthAddress, d.state.Handler(), healthListener),
	)
	if d.settings.ReadinessTaint != "" {
		all = append(all, d.taint())
	}
	for _, server := range []struct {
		name, address string
		handler       http.Handler
	}{
		{"metrics", d.settings.MetricsAddress, d.metrics.Handler()},
		{"pprof", d.settings.PprofAddress, profiles()},
	} {
		if server.address != "" {
			part := d.serve(server.name, server.address, server.handler, nil)
			part.Auxiliary = true
			all = append(all, part)
		}
	}
	d.supervisor = parts.New(d.state, d.log, all...)
	return d.supervisor
}

// install is the part that keeps the plugin on the node.
func (d *daemon) install() parts.Part {
	return parts.Part{Name: "installer", Run: func(ctx context.Context, say func(string)) error {
		pieces := []installer.Part{d.live}
		if d.settings.Install {
			pieces = append(pieces, d.installed()...)
		}
		keeper := installed.New(d.state, d.log, pieces...)
		release, err := d.installer.Attend(d.env.watched(ctx))
		if err != nil {
			return err
		}
		defer release()
		say("")
		keeper.Run(ctx)
		return nil
	}}
}

// installed returns the pieces of the installation, in the order in which they depend on each
// other. After a change of the plugin's kubeconfig, the API server is asked with the new token.
func (d *daemon) installed() []installer.Part {
	var own []installer.Part
	for _, part := range d.installer.Parts() {
		own = append(own, kept{part, d.env, d.settings, func() {
			if part.Name() != "kubeconfig" {
				return
			}
			d.memory.Worked()
			if d.deletion != nil {
				nudge(d.deletion.renewed)
			}
		}})
	}
	return d.metrics.Watch(own[0], own[1], own[2])
}

// serve is a part that serves HTTP, the first time on an open listener, if one is given.
func (d *daemon) serve(name, address string, handler http.Handler, first net.Listener) parts.Part {
	return parts.Part{Name: name, Run: func(ctx context.Context, say func(string)) error {
		listener := first
		first = nil
		if listener == nil {
			var err error
			if listener, err = d.env.listen(ctx, "tcp", address); err != nil {
				return fmt.Errorf("serve %s on %s: %w", name, address, err)
			}
		}
		d.log.Debug("serving", "part", name, "address", listener.Addr().String())
		say("")
		if err := health.Serve(ctx, listener, handler); err != nil {
			return fmt.Errorf("serve %s on %s: %w", name, listener.Addr(), err)
		}
		return nil
	}}
}

// working counts the requests of plugins as work.
type working struct {
	agent.Observer
	memory *footprint.Trimmer
}

// Request ignores requests for the agent's status: runtimes send one every few seconds, which would
// keep the memory from ever being returned.
func (w working) Request(request, outcome string) {
	w.Observer.Request(request, outcome)
	if request != agent.StatusRequest {
		w.memory.Worked()
	}
}
