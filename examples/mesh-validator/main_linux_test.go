// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// programVariable makes the test binary the program.
const programVariable = "MESH_VALIDATOR_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		code := run(ctx, environment{
			args: os.Args[1:], stdout: os.Stdout, stderr: os.Stderr, version: "v1", uid: os.Geteuid(), gid: os.Getegid(),
		})
		stop()
		os.Exit(code)
	}
	os.Exit(sandbox.RunTests(m))
}
