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
)

// upstreamNode are the commands that the agent of Istio 1.18 to 1.20 runs on a node whose proxy has
// the address 10.244.0.14 on vethz (cni/pkg/ambient/net_linux.go of Istio), in its order.
func nodeCommands(release upstream.NodeRelease, dns bool) []string {
	commands := strings.Split(strings.TrimSpace(`
nat -N ztunnel-PREROUTING
nat -I PREROUTING -j ztunnel-PREROUTING
nat -N ztunnel-POSTROUTING
nat -I POSTROUTING -j ztunnel-POSTROUTING
mangle -N ztunnel-PREROUTING
mangle -I PREROUTING -j ztunnel-PREROUTING
mangle -N ztunnel-POSTROUTING
mangle -I POSTROUTING -j ztunnel-POSTROUTING
mangle -N ztunnel-OUTPUT
mangle -I OUTPUT -j ztunnel-OUTPUT
mangle -N ztunnel-INPUT
mangle -I INPUT -j ztunnel-INPUT
mangle -N ztunnel-FORWARD
mangle -I FORWARD -j ztunnel-FORWARD
mangle -A ztunnel-PREROUTING -i istioin -j MARK --set-mark 0x200/0x200
mangle -A ztunnel-PREROUTING -i istioin -j RETURN
mangle -A ztunnel-PREROUTING -i istioout -j MARK --set-mark 0x200/0x200
mangle -A ztunnel-PREROUTING -i istioout -j RETURN
mangle -A ztunnel-FORWARD -m mark --mark 0x220/0x220 -j CONNMARK --save-mark --nfmask 0x220 --ctmask 0x220
mangle -A ztunnel-INPUT -m mark --mark 0x220/0x220 -j CONNMARK --save-mark --nfmask 0x220 --ctmask 0x220
mangle -A ztunnel-FORWARD -m mark --mark 0x210/0x210 -j CONNMARK --save-mark --nfmask 0x210 --ctmask 0x210
mangle -A ztunnel-INPUT -m mark --mark 0x210/0x210 -j CONNMARK --save-mark --nfmask 0x210 --ctmask 0x210
nat -A ztunnel-PREROUTING -m mark --mark 0x100/0x100 -j ACCEPT
nat -A ztunnel-POSTROUTING -m mark --mark 0x100/0x100 -j ACCEPT
mangle -A ztunnel-PREROUTING -p udp -m udp --dport 6081 -j RETURN
mangle -A ztunnel-PREROUTING -m connmark --mark 0x220/0x220 -j MARK --set-mark 0x200/0x200
mangle -A ztunnel-PREROUTING -m mark --mark 0x200/0x200 -j RETURN
mangle -A ztunnel-PREROUTING ! -i vethz -m connmark --mark 0x210/0x210 -j MARK --set-mark 0x40/0x40
mangle -A ztunnel-PREROUTING -m mark --mark 0x40/0x40 -j RETURN
mangle -A ztunnel-PREROUTING -i vethz ! --source 10.244.0.14 -j MARK --set-mark 0x210/0x210
mangle -A ztunnel-PREROUTING -m mark --mark 0x200/0x200 -j RETURN
mangle -A ztunnel-PREROUTING -i vethz -j MARK --set-mark 0x220/0x220
mangle -A ztunnel-PREROUTING -p udp -j MARK --set-mark 0x220/0x220
mangle -A ztunnel-PREROUTING -m mark --mark 0x200/0x200 -j RETURN
mangle -A ztunnel-PREROUTING -p tcp -m set --match-set ztunnel-pods-ips src -j MARK --set-mark 0x100/0x100`), "\n")
	if release == upstream.NodeRelease120 {
		commands = append(commands, "mangle -A ztunnel-OUTPUT -p tcp --source 192.0.2.1 -m owner --socket-exists -m set --match-set ztunnel-pods-ips dst -j MARK --set-mark 0x220")
	} else {
		commands = append(commands, "mangle -A ztunnel-OUTPUT --source 192.0.2.1 -j MARK --set-mark 0x220")
	}
	if release != upstream.NodeRelease118 {
		commands = append(commands, "filter -N ztunnel-FORWARD", "filter -I FORWARD -j ztunnel-FORWARD",
			"filter -A ztunnel-FORWARD -m mark --mark 0x100/0x100 -j ACCEPT")
	}
	if dns {
		commands = append(commands, "nat -A ztunnel-PREROUTING -p udp -m set --match-set ztunnel-pods-ips src -m udp --dport 53 -j DNAT --to 10.244.0.14:15053")
	}
	return commands
}

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
	for _, options := range nodeCommands(release, dns) {
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
