// SPDX-License-Identifier: Apache-2.0

package ambientsoak

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/internal/testing/testlog"
)

func TestMain(m *testing.M) { os.Exit(dataplanetest.RunTests(m)) }

var (
	minutes = flag.Float64("minutes", 0, "how long faults happen; 0: until each has happened once")
	count   = flag.Int("pods", 12, "how many pods the node has")
	seed    = flag.Uint64("seed", 0, "chooses what happens; 0: the time does")
	within  = flag.Duration("within", testlog.Patience, "how long the node has to recover from a fault")
)

// TestSoak lets pods come and go, and one fault after the other happen.
func TestSoak(t *testing.T) {
	t.Parallel()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d: repeat this run with -args -seed %d -pods %d -minutes %g", *seed, *seed, *count, *minutes)
	random := rand.New(rand.NewPCG(*seed, 0))
	n := newNode(t, random)
	n.settle("the start")
	n.countFiles()
	for range *count {
		n.create()
	}
	n.settle("the first pods")
	begin, faults := time.Now(), n.faults()
	for round := 0; !t.Failed() && (round < len(faults) || time.Since(begin).Minutes() < *minutes); {
		for _, i := range random.Perm(len(faults)) {
			round++
			n.churn()
			faults[i].happen()
			n.settle(faults[i].name)
		}
	}
	t.Logf("%d pods have come, and have made %d connections in %s; %d failed", n.created, n.made.Load(), time.Since(begin).Round(time.Second), n.failed.Load())
	t.Logf("the slowest recovery took %s: %s", n.slowest.took.Round(time.Millisecond), n.slowest.after)
	for len(n.pods) > 0 {
		n.remove(n.pods[0])
	}
	n.settle("the end")
	if n.made.Load() == n.failed.Load() {
		t.Error("no connection has succeeded")
	}
}
