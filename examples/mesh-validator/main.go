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
		args: os.Args[1:], stdout: os.Stdout, stderr: os.Stderr, version: version.String(), uid: os.Geteuid(), gid: os.Getegid(),
	}))
}

type environment struct {
	args           []string
	stdout, stderr io.Writer
	version        string
	// uid and gid are the process's own.
	uid, gid int
}
