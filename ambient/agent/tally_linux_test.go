// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient/agent/internal/tally/tallytest"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/ipset"
)

// TestIPSetsAreCounted has another program remove and add members of the host's ipsets. The kernel
// sends no notice, and no round comes for an hour.
func TestIPSetsAreCounted(t *testing.T) {
	t.Parallel()
	for _, flavour := range []iptables.Flavour{iptables.Legacy, iptables.NFT} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			n, name := newNode(t), "iptables-"+string(flavour)
			dataplane := hostDataplanes(t)[name]
			watched := tallytest.Watch(dataplane, func() { n.observe(Pod{}) })
			n.dataplane, n.options.Dataplane, n.options.Sets = dataplane, watched, dataplane
			settle := func() { n.await(watched.Settled, func() string { return "the counts differ from what is there" }) }
			counted := n.count()
			n.pod("a")
			a, _ := n.run()
			n.proxy()
			n.feed <- told(object("a"))
			n.awaitSelection(a, "a")
			want := []string{"10.244.1.10 a", "fd00:10:244:1::a a"}
			right := func() bool { return slices.Equal(n.members(), want) }
			n.await(right, func() string { return cmp.Diff(want, n.members()) })
			settle()
			n.onIPSet(func(s *ipset.Socket, set string) error {
				return s.Delete(set, ipset.Member{Prefix: netip.PrefixFrom(addresses[0], 32)})
			})
			counted.await("healed sets", 1)
			settle()
			n.addStray(name, netip.MustParseAddr("10.244.1.77"))
			counted.await("healed sets", 2)
			n.await(right, func() string { return cmp.Diff(want, n.members()) })
		})
	}
}

// TestFailedCount has the host's rules stand while they cannot be counted. The agent says so until
// it counts them again, long before a round.
func TestFailedCount(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	watched := tallytest.Watch(hostDataplanes(t)["nftables"], func() {})
	watched.Fail(true)
	n.options.Dataplane = watched
	var broken, right atomic.Bool
	n.options.ObserveHost = func(err error) {
		broken.Store(errors.Is(err, ErrUncounted) && errors.Is(err, tallytest.ErrBroken))
		right.Store(err == nil)
		n.observe(Pod{})
	}
	n.run()
	n.feed <- told()
	n.await(broken.Load, func() string { return "no error about the count" })
	watched.Fail(false)
	n.await(right.Load, func() string { return "the error stays" })
}
