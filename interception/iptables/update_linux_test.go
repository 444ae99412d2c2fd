// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"flag"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
)

var (
	kills = flag.Int("kills", 1, "how many processes are killed on each way from plan to plan")
	ways  = flag.Int("ways", 10, "how many ways from plans in one flavour to plans in the other are gone; 0 stands for all")
)

func TestUpdates(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		dataplanetest.Updates(t, dataplanetest.UpdateOptions{
			New: func(t testing.TB) interception.Dataplane {
				t.Helper()
				return dataplane(t, iptables.Options{Flavour: flavour})
			},
			Kills: *kills, Seed: *seed,
		})
	})
}

// TestUpdatesOfFlavours goes from plans in one flavour to plans in the other.
func TestUpdatesOfFlavours(t *testing.T) {
	t.Parallel()
	in := func(flavour iptables.Flavour) func(t testing.TB) interception.Dataplane {
		return func(t testing.TB) interception.Dataplane {
			t.Helper()
			return dataplane(t, iptables.Options{Flavour: flavour})
		}
	}
	dataplanetest.Updates(t, dataplanetest.UpdateOptions{
		New: in(iptables.Legacy), Other: in(iptables.NFT), Kills: *kills, Ways: *ways, Seed: *seed,
	})
}
