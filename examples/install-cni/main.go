// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/dataplane"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight"
	"github.com/meshcni/meshcni/examples/install-cni/internal/preflight/look"
	"github.com/meshcni/meshcni/examples/internal/istiomesh"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/footprint"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/version"
)

func main() {
	kernel.Explain()
	os.Exit(run(untilSignal(), processEnvironment()))
}

// environment is what the program uses from outside, except the files that its settings name.
type environment struct {
	// args are the arguments, without the program's name.
	args []string
	// environ are the environment's variables, as NAME=value.
	environ []string
	stdout  io.Writer
	stderr  io.Writer
	// listen opens the health server's port.
	listen func(ctx context.Context, network, address string) (net.Listener, error)
	// dial connects to the health server's port.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	now  func() time.Time
	// executable returns the path of this program.
	executable func() (string, error)
	// files observes each change of a file; may be nil.
	files filesystem.Observer
	// dataplane creates the chooser for how the plugin writes rules, given where the node's /proc
	// is mounted; nil if the kernel is not to be tried.
	dataplane func(log *slog.Logger, proc string) chooser
	// look looks at the node before ambient mode.
	look func(ctx context.Context, o look.Options) preflight.View
	// lookAround is how long after an event the daemon checks whether the node's directories were
	// moved.
	lookAround time.Duration
	// trim returns unused memory to the system, once the daemon has been idle for trimAfter.
	trim      func() error
	trimAfter time.Duration
	// lookWithin is how long the checks of the parts may take; 0 stands for what a probe of the
	// kubelet allows.
	lookWithin time.Duration
	// version is the version that the program was built from.
	version string
}

func processEnvironment() environment {
	return environment{
		args:       os.Args[1:],
		environ:    os.Environ(),
		stdout:     os.Stdout,
		stderr:     os.Stderr,
		listen:     (&net.ListenConfig{}).Listen,
		dial:       (&net.Dialer{}).DialContext,
		now:        time.Now,
		executable: os.Executable,
		look:       look.Node,
		lookAround: time.Second,
		trim:       footprint.Trim,
		trimAfter:  footprint.Quiet,
		version:    version.String(),
		dataplane: func(log *slog.Logger, proc string) chooser {
			return dataplane.New(dataplane.Options{Mesh: istiomesh.Mesh(), Log: log, Proc: proc})
		},
	}
}

// untilSignal returns a context that ends at the first signal to stop. A second signal ends the
// process at once.
func untilSignal() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx
}
