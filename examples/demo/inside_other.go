// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"context"

	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// demonstrate is never called: the sandbox needs Linux.
func demonstrate(context.Context, environment, progress, podManifest, sandbox.Info, node) int {
	return exitFailure
}

// runWorkload is never called either.
func runWorkload(context.Context, environment) int { return exitFailure }
