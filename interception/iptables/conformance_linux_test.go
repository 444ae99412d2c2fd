// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/testing/goldencases"
)

// TestConformance checks the laws of the interface, also with the plans of the golden cases.
func TestConformance(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		dataplanetest.Conformance(t, dataplanetest.ConformanceOptions{
			New: func(t testing.TB) interception.Dataplane {
				t.Helper()
				return dataplane(t, iptables.Options{Flavour: flavour})
			},
			Failing: func(t testing.TB, n int) interception.Dataplane {
				t.Helper()
				return dataplane(t, iptables.Options{Flavour: flavour, Runner: &failing{step: n - 1}})
			},
			Notes: func(line string) bool { return strings.Contains(line, "_0-LEDGER") },
			Without: map[dataplanetest.Law]string{
				dataplanetest.LawPriorities: "iptables has no priorities: the jumps of a hook stay together, and come first if one offset is negative",
			},
			Cases: goldencases.Load(t, "../sidecar/testdata"),
		})
	})
}
