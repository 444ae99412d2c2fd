// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/internal/testing/goldencases"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

// TestConformance checks the laws of the interface, also with the plans of the golden cases.
func TestConformance(t *testing.T) {
	t.Parallel()
	dataplanetest.Conformance(t, dataplanetest.ConformanceOptions{
		New: func(t testing.TB) interception.Dataplane {
			t.Helper()
			return dataplane(t)
		},
		Failing: func(t testing.TB, n int) interception.Dataplane {
			t.Helper()
			return dataplane(t).Through((&kerneltest.Fault{Kind: kerneltest.Unsent, At: n - 1}).Open)
		},
		Cases: goldencases.Load(t, "../sidecar/testdata"),
	})
}
