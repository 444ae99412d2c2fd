// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestIPTables enrols a pod by either flavour of iptables, restores its rules when another program
// has removed them, and withdraws it. Nothing tells of changes in iptables-legacy: rounds find
// them.
func TestIPTables(t *testing.T) {
	t.Parallel()
	for _, flavour := range []iptables.Flavour{iptables.NFT, iptables.Legacy} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			dataplane, err := iptables.New(iptables.Options{Flavour: flavour})
			if err != nil {
				t.Fatal(err)
			}
			n := newNode(t)
			n.dataplane, n.options.Dataplane, n.options.Sets = dataplane, dataplane, dataplane
			n.options.Round = 50 * time.Millisecond
			pod := n.pod("a")
			a, _ := n.run()
			n.proxy()
			n.feed <- told(object("a"))
			n.awaitStatus(a, "a", ambient.StatusEnabled)
			n.connect(pod, 1)
			inside, err := os.Open(pod.Path())
			if err != nil {
				t.Fatal(err)
			}
			defer inside.Close()
			plan := n.recorded("a").Plan
			for range 5 { // the agent may still look again because of its own changes
				sandboxtest.Run(t, inside, "", "iptables-"+string(flavour), "-t", "nat", "-F")
				n.await(func() bool { return !differs(plan, n.state(pod)) }, func() string { return "the rules were not restored: " + describe(a) })
			}
			n.connect(pod, 1)
			n.feed <- told(optedOut("a"))
			n.awaitRest(a)
			n.connect(pod, 0)
			if n.captured(pod) {
				t.Error("the rules are still there")
			}
		})
	}
}
