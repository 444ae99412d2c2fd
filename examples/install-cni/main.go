// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/dataplane"
	"github.com/meshcni/meshcni/examples/internal/istiomesh"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/footprint"
	"github.com/meshcni/meshcni/internal/kernel"
)

func main() {
	kernel.Explain()
	os.Exit(run(untilSignal(), processEnvironment()))
}

// environment is everything the program takes from the world, beside the files its settings name.
type environment struct {
	// args are the command line's words after the program's name.
	args []string
	// environ are the environment's variables, as NAME=value.
	environ []string
	stdout  io.Writer
	stderr  io.Writer
	// colour says that standard output is for eyes.
	colour bool
	// listen opens the health server's port.
	listen func(ctx context.Context, network, address string) (net.Listener, error)
	now    func() time.Time
	// executable is the path of this program.
	executable func() (string, error)
	// files sees each change of a file; nil for none.
	files filesystem.Observer
	// dataplane makes what chooses how the plugin writes rules, given where the node's /proc is mounted; nil
	// for nothing that asks the kernel.
	dataplane func(log *slog.Logger, proc string) chooser
	// lookAround is how long behind an event the daemon looks whether the node's directories are where they were.
	lookAround time.Duration
	// trim gives back the memory that isn't in use, when the daemon's work has been over for the time trimAfter.
	trim      func() error
	trimAfter time.Duration
	// lookWithin is how long the parts may take to show how they are doing; what a probe of the kubelet leaves them when 0.
	lookWithin time.Duration
	// version is what the program was built from.
	version string
}

func processEnvironment() environment {
	return environment{
		args:       os.Args[1:],
		environ:    os.Environ(),
		stdout:     os.Stdout,
		stderr:     os.Stderr,
		colour:     onTerminal(os.Stdout),
		listen:     (&net.ListenConfig{}).Listen,
		now:        time.Now,
		executable: os.Executable,
		lookAround: time.Second,
		trim:       footprint.Trim,
		trimAfter:  footprint.Quiet,
		version:    buildVersion(),
		dataplane: func(log *slog.Logger, proc string) chooser {
			return dataplane.New(dataplane.Options{Mesh: istiomesh.Mesh(), Log: log, Proc: proc})
		},
	}
}

// onTerminal says whether a file is a terminal that takes colours, and nobody forbids them (https://no-color.org).
func onTerminal(file *os.File) bool {
	info, err := file.Stat()
	_, forbidden := os.LookupEnv("NO_COLOR")
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && !forbidden && os.Getenv("TERM") != "dumb"
}

// version is set by the linker, with -X main.version=….
var version string

func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if version == "" && ok {
		return info.Main.Version
	}
	return version
}

// untilSignal ends when the process is told to stop. A second signal ends the process at once.
func untilSignal() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx
}
