// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package dataplanetest

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// Namespace skips the test.
func (Kernel) Namespace(t testing.TB) *interception.Netns { return notHere[*interception.Netns](t) }

// Dump skips the test.
func (Kernel) Dump(t testing.TB, _ *interception.Netns) string { return notHere[string](t) }

// Occupy skips the test.
func (Kernel) Occupy(t testing.TB, _ *interception.Netns, _ *interception.Plan) { notHere[any](t) }

func (Kernel) edits(Case) []Edit { return nil }

func notHere[T any](t testing.TB) (nothing T) {
	t.Helper()
	t.Skipf("a kernel's dataplane is tested on Linux: %v", unsupported())
	return nothing
}
