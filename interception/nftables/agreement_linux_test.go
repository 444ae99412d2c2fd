// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"flag"
	"testing"

	"github.com/meshcni/meshcni/interception/dataplanetest"
)

var (
	pairs = flag.Int("pairs", 2000, "how many random pairs of redirect and packet the kernel is compared with")
	seed  = flag.Uint64("seed", 0, "where the random redirects begin")
)

func TestAgreesWithTrace(t *testing.T) {
	t.Parallel()
	dataplanetest.Agree(t, dataplane(t), dataplanetest.AgreementOptions{Seed: *seed, Pairs: *pairs})
}
