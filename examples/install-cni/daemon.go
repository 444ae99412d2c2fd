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
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/examples/install-cni/internal/agent"
	"github.com/meshcni/meshcni/examples/install-cni/internal/daemon"
	"github.com/meshcni/meshcni/examples/install-cni/internal/daemonset"
	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/examples/install-cni/internal/live"
	"github.com/meshcni/meshcni/examples/install-cni/internal/metrics"
	"github.com/meshcni/meshcni/examples/install-cni/internal/mounts"
	"github.com/meshcni/meshcni/examples/install-cni/internal/parts"
	"github.com/meshcni/meshcni/examples/install-cni/internal/profiling"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/examples/install-cni/internal/watcher"
	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/footprint"
)

// node is the daemon on one node.
type node struct {
	env       environment
	settings  settings.Settings // of the start
	log       *slog.Logger
	level     *slog.LevelVar // of the log; changes with the settings
	live      *live.Part
	installer *installer.Installer
	state     *health.State
	metrics   *metrics.Metrics
	pods      *watcher.Watcher         // nil if no pods are watched
	excluded  atomic.Pointer[[]string] // namespaces, as of now
	deletion  *daemonset.Client        // nil if the API server is not to be asked
	renewed   chan struct{}            // signals that the service account's token has changed
	kept      chan struct{}            // signals that this daemon has taken the node
	// repairNews signals a new report of the node-watcher about repair.
	repairNews chan struct{}
	memory     *footprint.Trimmer
	mounts     *mounts.Mounts          // of the node's directories
	end        context.CancelCauseFunc // ends all parts, if only a new process helps

	supervisor *parts.Supervisor
}

// runDaemon runs all parts until it is stopped.
func runDaemon(ctx context.Context, env environment, loaded settings.Loaded, log *slog.Logger, level *slog.LevelVar) error {
	n, err := assemble(env, loaded, log, level)
	if err != nil {
		return &usageError{err}
	}
	// This comes first: a daemon that cannot report the node's state is useless, and the port is a
	// setting.
	listener, err := env.listen(ctx, "tcp", n.settings.HealthAddress)
	if err != nil {
		return fmt.Errorf("serve health on %s: %w; set health-address to one that is free", n.settings.HealthAddress, err)
	}
	log.Info("started", "version", env.version, "owner", n.settings.Owner(), "health", listener.Addr().String())
	defer n.memory.Stop()
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	n.end = stop
	var reason string
	// The parts go on until it is known what happens to the node.
	context.AfterFunc(ctx, func() {
		defer stop(nil)
		reason = n.endOfInstallation(working)
	})
	n.supervise(listener).Run(working)
	if err := context.Cause(working); errors.Is(err, mounts.ErrMoved) {
		return err
	}
	return n.depart(context.WithoutCancel(ctx), reason)
}

func assemble(env environment, loaded settings.Loaded, log *slog.Logger, level *slog.LevelVar) (*node, error) {
	s, state := loaded.Settings, health.NewState()
	state.LookWithin = env.lookWithin
	state.Tell(log)
	n := &node{
		env: env, settings: s, log: log, level: level, state: state,
		renewed: make(chan struct{}, 1), kept: make(chan struct{}, 1), repairNews: make(chan struct{}, 1),
	}
	n.deletion, n.memory = newDeletion(s, env.now, log), footprint.NewTrimmer(env.trimAfter, env.trim, log)
	how := env.installation(log, s)
	if err := n.newInstaller(how.options(s)); err != nil {
		return nil, err
	}
	n.mounts = n.mounted()
	n.live = live.New(loaded, log, env.files, func(s settings.Settings) {
		level.Set(s.LogLevel)
		if err := n.installer.Use(how.options(s)); err != nil {
			log.Error("new settings are refused; the old ones stay", "error", err)
		}
		n.exclude(s)
	})
	n.exclude(s)
	if s.NodeName != "" {
		n.pods = n.watcher()
	}
	n.metrics = metrics.New(metrics.Sources{
		Version: env.version, State: state, TokenTime: n.tokenTime, Claim: n.installer.ClaimState, Now: env.now, Repair: n.repairStatus,
		Server: n.serverStatus,
	})
	return n, nil
}

// newInstaller creates the installer, which reports restored changes and that this daemon has taken
// the node.
func (n *node) newInstaller(o installer.Options) (err error) {
	o.OnRestore = func(c reconciler.Change) { n.metrics.Restored(c.By.Name) }
	o.OnTake = func() { nudge(n.kept) }
	n.installer, err = installer.New(o)
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
func (n *node) supervise(healthListener net.Listener) *parts.Supervisor {
	a := &agent.Agent{
		RunDir: n.settings.RunDir, Version: n.env.version, Log: n.log, Now: n.env.now, Observer: working{n.metrics, n.memory},
		Instance: rand.Text(), Keeps: n.installer.Keeps, Kept: n.kept,
		Restart: func(part, why string) { n.supervisor.Restart(part, why) },
	}
	var all []parts.Part
	if n.pods != nil {
		a.Pods, all = n.pods, append(all, n.pods.Part())
	}
	if n.settings.Repair.Enabled && (n.pods != nil || n.settings.Repair.WantsInPlace()) {
		all = append(all, n.shortfalls())
	}
	if n.deletion != nil {
		all = append(all, n.acquaint())
	}
	all = append(all,
		n.stayPut(),
		n.install(),
		a.Socket(),
		a.IstioLog(),
		a.Spool(),
		n.serve("health", n.settings.HealthAddress, n.state.Handler(), healthListener),
	)
	if n.settings.ReadinessTaint != "" {
		all = append(all, n.taint())
	}
	for _, server := range []struct {
		name, address string
		handler       http.Handler
	}{
		{"metrics", n.settings.MetricsAddress, n.metrics.Handler()},
		{"pprof", n.settings.PprofAddress, profiling.Handler()},
	} {
		if server.address != "" {
			part := n.serve(server.name, server.address, server.handler, nil)
			part.Auxiliary = true
			all = append(all, part)
		}
	}
	n.supervisor = parts.New(n.state, n.log, all...)
	return n.supervisor
}

// serverStatus returns how the API server answers; nil if no pods are watched, or nothing is known
// yet.
func (n *node) serverStatus() *podsource.ServerStatus {
	if n.pods == nil {
		return nil
	}
	return n.pods.Server()
}

// repairStatus returns the state of repair; nil if repair is off, or nothing is known yet.
func (n *node) repairStatus() *repairconf.Status {
	if n.pods == nil {
		return nil
	}
	return n.pods.Repair()
}

// install is the part that keeps the plugin on the node.
func (n *node) install() parts.Part {
	return parts.Part{Name: "installer", Run: func(ctx context.Context, say func(string)) error {
		all := []daemon.Part{n.live}
		if n.settings.Install {
			own := n.parts()
			all = append(all, n.metrics.Watch(own[0], renewing{own[1], n}, own[2])...)
		}
		keeper := daemon.New(n.state, n.log, all...)
		release, err := n.installer.Attend(n.env.watched(ctx))
		if err != nil {
			return err
		}
		defer release()
		say("")
		keeper.Run(ctx)
		return nil
	}}
}

// serve is a part that serves HTTP, the first time on an open listener, if one is given.
func (n *node) serve(name, address string, handler http.Handler, first net.Listener) parts.Part {
	return parts.Part{Name: name, Run: func(ctx context.Context, say func(string)) error {
		listener := first
		first = nil
		if listener == nil {
			var err error
			if listener, err = n.env.listen(ctx, "tcp", address); err != nil {
				return fmt.Errorf("serve %s on %s: %w", name, address, err)
			}
		}
		n.log.Debug("serving", "part", name, "address", listener.Addr().String())
		say("")
		if err := health.Serve(ctx, listener, handler); err != nil {
			return fmt.Errorf("serve %s on %s: %w", name, listener.Addr(), err)
		}
		return nil
	}}
}

// tokenTime returns when the service account's token was written.
func (n *node) tokenTime() (time.Time, error) {
	info, err := os.Stat(filepath.Join(n.settings.ServiceAccountDir, "token"))
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// runUninstall undoes what a daemon did. With onExit, a running daemon does so when it is stopped.
func runUninstall(
	ctx context.Context, env environment, node *installer.Installer, s settings.Settings, log *slog.Logger, o installer.UninstallOptions,
	onExit bool,
) error {
	err := node.Uninstall(env.watched(ctx), o)
	if !errors.Is(err, installer.ErrInUse) {
		untaintLast(ctx, s, log)
	}
	if onExit && errors.Is(err, installer.ErrInUse) {
		if err := node.RequestUninstall(env.watched(ctx)); err != nil {
			return err
		}
		log.Info("the daemon on this node uninstalls when it is told to stop")
		return nil
	}
	return finish(hint(err, s), log)
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
