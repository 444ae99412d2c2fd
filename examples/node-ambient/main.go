// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/meshcni/meshcni/internal/footprint"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/version"
)

func main() {
	kernel.Explain()
	// Threads that work for pods enter their network namespaces. The main thread does not, so
	// /proc/self/ns/net keeps showing this process's own.
	runtime.LockOSThread()
	code := make(chan int)
	go func() { code <- start() }()
	os.Exit(<-code)
}

func start() int {
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // however the input ends
		end()
	}()
	return run(ctx, environment{
		args: os.Args[1:], stdout: os.Stdout, stderr: os.Stderr, trim: footprint.Trim, trimAfter: footprint.Quiet, version: version.String(),
	})
}

// environment is what the program uses from outside.
type environment struct {
	args           []string
	stdout, stderr io.Writer
	version        string
	// trim returns unused memory to the system, once the program has been idle for trimAfter. Without
	// it (nil) the program keeps what it has.
	trim      func() error
	trimAfter time.Duration
}
