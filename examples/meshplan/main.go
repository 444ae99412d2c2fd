// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/meshcni/meshcni/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, environment{
		args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, version: version.String(),
	}))
}

// environment is everything that the program takes from its surroundings, except the sources that
// its command line names.
type environment struct {
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	// version is the version that the program was built from.
	version string
}
