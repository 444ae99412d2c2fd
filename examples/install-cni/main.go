// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

func main() { os.Exit(run(untilSignal(), processEnvironment())) }

// environment is everything the program takes from the world, beside the files its settings name.
type environment struct {
	// args are the command line's words after the program's name.
	args      []string
	lookupEnv func(name string) (value string, ok bool)
	stdout    io.Writer
	stderr    io.Writer
	// listen opens the health server's port.
	listen func(ctx context.Context, network, address string) (net.Listener, error)
	now    func() time.Time
	// version is what the program was built from.
	version string
}

func processEnvironment() environment {
	return environment{
		args:      os.Args[1:],
		lookupEnv: os.LookupEnv,
		stdout:    os.Stdout,
		stderr:    os.Stderr,
		listen:    (&net.ListenConfig{}).Listen,
		now:       time.Now,
		version:   buildVersion(),
	}
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
