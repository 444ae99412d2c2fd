// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"flag"
	"testing"

	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
)

var (
	pairs = flag.Int("pairs", 1000, "how many random pairs of redirect and packet the kernel is compared with, for each flavour")
	seed  = flag.Uint64("seed", 10000, "where the random redirects begin")
)

func TestAgreesWithTrace(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		d := dataplane(t, iptables.Options{Flavour: flavour})
		dataplanetest.Agree(t, d, dataplanetest.AgreementOptions{Seed: *seed, Pairs: *pairs})
	})
}
