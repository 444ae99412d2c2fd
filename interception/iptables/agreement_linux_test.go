// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"flag"
	"testing"

	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
)

var (
	pairs = flag.Int("pairs", 2000, "how many random pairs of redirect and packet the kernel is compared with, for each flavour")
	seed  = flag.Uint64("seed", 0, "where the random redirects begin")
)

func TestAgreesWithTrace(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		dataplanetest.Agree(t, dataplane(t, iptables.Options{Flavour: flavour}), dataplanetest.AgreementOptions{Seed: *seed, Pairs: *pairs})
	})
}
