// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"flag"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
)

var kills = flag.Int("kills", 1, "how many processes are killed on each way from plan to plan")

func TestUpdates(t *testing.T) {
	t.Parallel()
	dataplanetest.Updates(t, dataplanetest.UpdateOptions{
		New:   func(t testing.TB) interception.Dataplane { t.Helper(); return dataplane(t) },
		Kills: *kills, Seed: *seed,
	})
}
