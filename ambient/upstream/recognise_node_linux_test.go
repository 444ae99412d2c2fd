// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/upstreamtest"
)

// TestRecogniseNode has the agent's rules, as they are and with changes of other programs.
func TestRecogniseNode(t *testing.T) {
	t.Parallel()
	for program, command := range map[upstream.Program]string{
		upstream.ProgramIPTablesLegacy: "iptables-legacy", upstream.ProgramIPTablesNFT: "iptables-nft",
	} {
		for _, release := range []upstream.NodeRelease{upstream.NodeRelease118, upstream.NodeRelease119, upstream.NodeRelease120} {
			for _, dns := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s dns %v", program, release, dns), func(t *testing.T) {
					t.Parallel()
					recogniseNode(t, program, command, release, dns)
				})
			}
		}
	}
}

func recogniseNode(t *testing.T, program upstream.Program, command string, release upstream.NodeRelease, dns bool) {
	t.Helper()
	node := sandboxtest.NewPod(t)
	run := func(options string) {
		node.Run(t, "", append([]string{command, "-t"}, strings.Fields(options)...)...)
	}
	if err := node.Namespace.Do(func() error {
		return netlink.IpsetCreate("ztunnel-pods-ips", "hash:ip", netlink.IpsetCreateOptions{Comments: true})
	}); err != nil {
		t.Fatal(err)
	}
	for _, options := range upstreamtest.NodeCommands(release, dns) {
		run(options)
	}
	found := recognisedNode(t, node, program)
	want := upstream.NodeRules{
		Release: release, Proxy: netip.MustParseAddr("10.244.0.14"), ProxyLink: "vethz", Node: netip.MustParseAddr("192.0.2.1"), UDPPort: 6081, DNS: dns,
	}
	if len(found) != 1 || found[0].Rules != want || len(found[0].Differences) > 0 {
		t.Fatalf("found %+v, want %+v", found, want)
	}
	if found[0].Program != program {
		t.Errorf("written by %s, want %s", found[0].Program, program)
	}
	for _, change := range []string{
		"mangle -I ztunnel-PREROUTING -s 10.0.0.1 -j RETURN", "mangle -D ztunnel-PREROUTING 4", "mangle -A ztunnel-FORWARD -j ACCEPT",
		"mangle -D ztunnel-PREROUTING -p tcp -m set --match-set ztunnel-pods-ips src -j MARK --set-mark 0x100/0x100",
	} {
		run(change)
		changed := recognisedNode(t, node, program)
		if len(changed) != 1 || len(changed[0].Differences) <= len(found[0].Differences) {
			t.Errorf("after %s: %+v", change, changed)
		}
		found = changed
	}
}

func recognisedNode(t *testing.T, node *sandboxtest.Pod, program upstream.Program) []upstream.RecognisedNode {
	t.Helper()
	state, err := reader(t, program).Observe(t.Context(), node.Netns, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	return upstream.RecogniseNode(state.Foreign)
}
