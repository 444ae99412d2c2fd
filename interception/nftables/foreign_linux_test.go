// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
)

// TestForeignEdits has other programs add chains: Observe reads them only when asked to.
func TestForeignEdits(t *testing.T) {
	t.Parallel()
	for name, e := range foreignEdits() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, plan := newPod(t), edited(t)
			ns.apply(t, plan)
			e.do(t, ns)
			if diff := cmp.Diff(e.want, ns.drifts(t, plan)); diff != "" {
				t.Errorf("said of it (-want +got):\n%s\n%s", diff, ns.ruleset(t))
			}
			state := ns.observe(t, plan.Owner)
			if state.Foreign != nil || interception.Diff(plan, state) != nil {
				t.Errorf("others are seen without being asked for: %v", state.Foreign)
			}
		})
	}
}

func foreignEdits() map[string]edit {
	return map[string]edit{
		"a redirect ahead": {script("table ip thief { chain c { type nat hook output priority -150; tcp dport 80 redirect to :8080; }; }"), []string{
			"ip thief/c (hook output, priority -150): foreign: got v4 tcp dport 80 -> redirect to :8080",
		}},
		"a jump to a drop": {script("table inet other { chain d { udp dport 53 drop; }; chain c { type filter hook input priority 10; ct state established accept; jump d; }; }"), []string{
			"inet other/d (hook input, priority 10): foreign: got udp dport 53 -> drop",
		}},
		"a policy": {script("table inet other { chain c { type filter hook prerouting priority 10; policy drop; tcp dport { 80, 443 } accept; }; }"), []string{
			"inet other/c (hook prerouting, priority 10): foreign: got policy drop",
		}},
		"marks and zones": {script("table ip6 other { chain c { type filter hook prerouting priority -400; ip6 saddr fc00::/7 notrack; meta mark set 0x1; ct zone set 7; }; }"), []string{
			"ip6 other/c (hook prerouting, priority -400): foreign: got src fc00::/7 -> notrack",
			"ip6 other/c (hook prerouting, priority -400): foreign: got v6 -> set mark 0x1",
			"ip6 other/c (hook prerouting, priority -400): foreign: got v6 -> zone 7",
		}},
		"opaque": {script("table inet other { set s { type ipv4_addr; }; chain c { type filter hook output priority 0; ip daddr @s drop; limit rate 1/second drop; }; }"), []string{
			"inet other/c (hook output, priority 0): foreign: got v4 -> opaque: payload 0x0800010000000001080002000000000108000300000000100800040000000004, lookup @s, drop",
			"inet other/c (hook output, priority 0): foreign: got any -> opaque: limit 0x0c00010000000000000000010c0002000000000000000001080003000000000508000400000000000800050000000000, drop",
		}},
		"ingress": {script("table netdev other { chain c { type filter hook ingress device \"lo\" priority 0; tcp dport 80 drop; }; }"), []string{
			"netdev other/c (hook ingress, priority 0): foreign: got tcp dport 80 -> drop",
		}},
		"iptables-nft": {commands("iptables-nft -t nat -A OUTPUT -p tcp -m multiport --dports 80,443 -j REDIRECT --to-ports 8080", "iptables-nft -A INPUT -p udp -j DROP"), []string{
			"ip nat/OUTPUT (hook output, priority -100): foreign: got v4 tcp -> opaque: match multiport 01025000bb01000000000000000000000000000000000000000000000000000000000000000000000000000000000000, target REDIRECT 010000000200000000000000000000001f901f9000000000",
			"ip filter/INPUT (hook input, priority 0): foreign: got v4 udp -> drop",
		}},
		"what decides nothing": {script("table inet other { chain c { type filter hook output priority 0; tcp dport 80 counter; log prefix \"x\"; accept; }; }"), nil},
		"in another hook":      {script("table inet other { chain c { type filter hook forward priority 0; drop; }; }"), nil},
		"dormant":              {script("table inet other { flags dormant; chain c { type filter hook output priority 0; drop; }; }"), nil},
	}
}
