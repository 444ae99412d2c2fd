// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/sandbox"
)

func main() { os.Exit(run(context.Background(), processEnvironment())) }

// environment is everything the program takes from the world, beside its temporary directory.
type environment struct {
	// args are the command line's words after the program's name.
	args   []string
	getenv func(name string) string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	// terminal says that stdout is one.
	terminal bool
	// untilSignal ends when the process is told to stop. The sandbox wants to be entered before.
	untilSignal func(context.Context) context.Context
	// self is the command line that starts this program again.
	self []string
	// enter goes on inside a sandbox, with the stage in the environment.
	enter func(ctx context.Context, stage string) (sandbox.Info, error)
	// expect says what will become of a packet.
	expect func(trace.World, trace.Packet) (trace.Outcome, error)
}

func processEnvironment() environment {
	return environment{
		args:        os.Args[1:],
		getenv:      os.Getenv,
		stdin:       os.Stdin,
		stdout:      os.Stdout,
		stderr:      os.Stderr,
		terminal:    isTerminal(os.Stdout),
		untilSignal: untilSignal,
		self:        []string{"/proc/self/exe"},
		enter:       enter,
		expect:      trace.Trace,
	}
}

// stageVariable tells the program inside the sandbox where it is.
const stageVariable = "MESHCNI_DEMO_STAGE"

func enter(ctx context.Context, stage string) (sandbox.Info, error) {
	if err := os.Setenv(stageVariable, stage); err != nil {
		return sandbox.Info{}, err
	}
	return sandbox.Enter(ctx, sandbox.Options{})
}

// isTerminal reports whether the file is a terminal, or another device that characters are sent to.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// untilSignal ends when the process is told to stop. A second signal ends the process at once.
func untilSignal(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx
}
