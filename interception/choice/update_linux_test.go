// SPDX-License-Identifier: Apache-2.0

package choice_test

import (
	"flag"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
)

var (
	kills = flag.Int("kills", 1, "how many processes are killed on each way from plan to plan")
	ways  = flag.Int("ways", 10, "how many ways from plan to plan are gone, for each flavour of iptables; 0 stands for all")
	seed  = flag.Uint64("seed", 0, "chooses the ways, and the instants of kills")
)

// TestUpdates changes from plans of nftables to plans of iptables, and back.
func TestUpdates(t *testing.T) {
	t.Parallel()
	for _, other := range []string{"iptables legacy", "iptables nft"} {
		t.Run(other, func(t *testing.T) {
			t.Parallel()
			dataplanetest.Updates(t, dataplanetest.UpdateOptions{
				New:   func(t testing.TB) interception.Dataplane { t.Helper(); return backends(t)["nftables"] },
				Other: func(t testing.TB) interception.Dataplane { t.Helper(); return backends(t)[other] },
				Kills: *kills, Ways: *ways, Seed: *seed,
			})
		})
	}
}
