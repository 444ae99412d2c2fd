// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// kubeProxyTables is a model of what kube-proxy writes in its iptables mode for a service with one
// endpoint and for one without: the hint that tells its choice, marks, a translation, masquerading
// and a rejection.
const kubeProxyTables = `*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
COMMIT
*filter
:KUBE-FORWARD - [0:0]
:KUBE-SERVICES - [0:0]
-A FORWARD -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-SERVICES -d 10.96.0.11/32 -p tcp -m tcp --dport 80 -j REJECT
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-A
-A KUBE-SVC-A ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ
-A KUBE-SVC-A -m statistic --mode random --probability 0.5 -j KUBE-SEP-A
-A KUBE-SVC-A -j KUBE-SEP-A
-A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.244.1.6:8080
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
COMMIT
`

// firewalld is a model of what firewalld writes: zones by interface, a check of sources for IPv6,
// and a rejection at the end of what is forwarded.
const firewalld = `
table inet firewalld {
	chain mangle_PREROUTING { type filter hook prerouting priority mangle + 10; policy accept; jump mangle_PREROUTING_ZONES; }
	chain mangle_PREROUTING_ZONES { iifname "cni0" return; }
	chain filter_PREROUTING {
		type filter hook prerouting priority filter + 10; policy accept
		icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
		meta nfproto ipv6 fib saddr . mark . iif oif missing drop
	}
	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept
		ct state { established, related } accept
		iifname "lo" accept
		jump filter_INPUT_ZONES
		reject with icmpx admin-prohibited
	}
	chain filter_INPUT_ZONES { iifname "cni0" accept; }
	chain filter_FORWARD {
		type filter hook forward priority filter + 10; policy accept
		ct state { established, related } accept
		iifname { "cni0", "cali1", "istioin*" } accept
		reject with icmpx admin-prohibited
	}
	chain nat_POSTROUTING { type nat hook postrouting priority srcnat + 10; policy accept; oifname "eth0" masquerade; }
}`

// crowd gives a host what other programs have on a node: both kinds of pods' networks, policy
// rules, kube-proxy in both modes, firewalld, a set, and settings.
func crowd(t *testing.T, host *sandboxtest.Pod) {
	t.Helper()
	host.Run(t, "", "sysctl", "-q", "-w", "net.ipv6.conf.default.addr_gen_mode=1") // link-local addresses come later than links
	for _, line := range []string{
		"link set lo up",
		"link add cni0 type bridge", "link add vetha type veth peer name podeth0", "link set vetha master cni0 up", "link set cni0 up",
		"address add 10.244.1.1/24 dev cni0", "address add fd00:10:244:1::1/64 dev cni0 nodad",
		"link add cali1 type veth peer name podeth1", "link set cali1 up", "link set podeth1 up", "link set podeth0 up",
		"route add 10.244.2.5/32 dev cali1 scope link", "route add 10.244.2.6/32 dev cali1 scope link", "route add fd00:10:244:2::5/128 dev cali1",
		"route add blackhole 10.244.2.0/26 proto 80", "route add default via 10.244.1.9 dev cni0",
		"route add 10.9.0.0/16 via 10.244.1.9 dev cni0 table 2004", "rule add fwmark 0x20000/0xf0000 lookup 2004 priority 512",
		"-6 rule add fwmark 0x20000/0xf0000 lookup 2004 priority 512", "rule add from 10.9.0.0/16 lookup main suppress_prefixlength 0 priority 513",
	} {
		host.Run(t, "", append([]string{"ip"}, strings.Fields(line)...)...)
	}
	host.Run(t, "", "sysctl", "-q", "-w", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.cni0.rp_filter=1",
		"net.ipv4.conf.default.rp_filter=2", "net.ipv6.conf.all.forwarding=1")
	host.Run(t, kubeProxyTables, "iptables-nft-restore", "--noflush")
	host.Run(t, kubeProxyTables, "iptables-legacy-restore", "--noflush")
	host.Run(t, strings.NewReplacer("10.96.0.10/32", "fd00:96::a/128", "10.96.0.11/32", "fd00:96::b/128", "10.244.0.0/16", "fd00:10:244::/48",
		"10.244.1.6:8080", "[fd00:10:244:1::6]:8080").Replace(kubeProxyTables), "ip6tables-nft-restore", "--noflush")
	host.Run(t, kubeProxy+firewalld, "nft", "-f", "-")
	if err := host.Namespace.Do(func() error {
		return netlink.IpsetCreate("cali40all-pools", "hash:net", netlink.IpsetCreateOptions{Comments: true})
	}); err != nil {
		t.Fatal(err)
	}
}

// dump lists a host whole, with the order of its rules, but for what the kernel counts.
func dump(t *testing.T, host *sandboxtest.Pod) []string {
	t.Helper()
	var all []string
	add := func(of, text string) {
		for line := range strings.Lines(text) {
			all = append(all, of+": "+strings.TrimRight(line, "\n"))
		}
	}
	for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save"} {
		table := ""
		for line := range strings.Lines(host.Run(t, "", program)) {
			line = strings.TrimSpace(line)
			switch chain, _, _ := strings.Cut(line, " ["); {
			case strings.HasPrefix(line, "*"):
				table = line
			case strings.HasPrefix(line, "-A"):
				all = append(all, program+table+": "+line)
			case strings.HasPrefix(line, ":") && !strings.HasSuffix(chain, " ACCEPT"): // the kernel's own come with the first use
				all = append(all, program+table+": "+chain)
			}
		}
	}
	for line := range strings.Lines(host.Run(t, "", "nft", "list", "tables")) {
		if table := strings.TrimSpace(strings.TrimPrefix(line, "table ")); !strings.HasPrefix(table, "ip ") && !strings.HasPrefix(table, "ip6 ") {
			add("nft", host.Run(t, "", append([]string{"nft", "--stateless", "list", "table"}, strings.Fields(table)...)...))
		}
	}
	for _, table := range []string{"ip", "ip6"} {
		add("nft", host.Run(t, "", "nft", "--stateless", "list", "table", table, "kube-proxy"))
	}
	for _, family := range []string{"-4", "-6"} {
		add("rule", host.Run(t, "", "ip", family, "rule"))
		add("route", host.Run(t, "", "ip", family, "route", "show", "table", "all"))
	}
	add("address", host.Run(t, "", "ip", "-br", "address"))
	add("link", host.Run(t, "", "ip", "-o", "link"))
	add("sysctl", host.Run(t, "", "sysctl", "-a", "-r", `net\.ipv[46]\.(conf|ip_forward|fib_multipath)`))
	if err := host.Namespace.Do(func() error {
		sets, err := netlink.IpsetListAll()
		for _, set := range sets {
			add("set", fmt.Sprintf("%s %s %v", set.SetName, set.TypeName, set.Entries))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// missing returns the lines that another list does not have, in the same order.
func missing(lines, from []string) (all []string) {
	next := 0
	for _, line := range lines {
		at := next
		for at < len(from) && from[at] != line {
			at++
		}
		if at == len(from) {
			all = append(all, line)
			continue
		}
		next = at + 1
	}
	return all
}

// TestNodePlanBesideOthers applies the plan of a node and removes it, 100 times by both ways of the
// wires, on a host with what other programs have there. While the plan is there, all of that is
// too, in its order. Afterwards the host is as before.
func TestNodePlanBesideOthers(t *testing.T) {
	t.Parallel()
	const rounds = 100
	for name, backend := range hosts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, pod := sandboxtest.NewPod(t), sandboxtest.NewPod(t)
			crowd(t, host)
			before := dump(t, host)
			plans := []*interception.Plan{}
			for _, proxy := range ways() {
				plan, err := ambient.NodePlan(proxy, ambient.IstioNodeNumbers(), bothFamilies(), "test-ambient")
				if err != nil {
					t.Fatal(err)
				}
				plans = append(plans, plan)
			}
			handle := host.With("proxy", pod.Netns)
			for round := range rounds {
				plan := plans[round%len(plans)]
				if err := backend.Apply(t.Context(), handle, plan); err != nil {
					t.Fatal(err)
				}
				if round < len(plans) {
					for _, address := range []string{"10.244.1.2", "fd00:10:244:1::2"} {
						enter(t, backend, handle, plan.Owner, netip.MustParseAddr(address))
					}
					if lost := missing(before, dump(t, host)); lost != nil {
						t.Errorf("while the plan is there, others lack\n%s", strings.Join(lost, "\n"))
					}
				}
				if err := backend.Remove(t.Context(), handle, plan.Owner); err != nil {
					t.Fatal(err)
				}
				if round < len(plans) || round == rounds-1 {
					if diff := cmp.Diff(before, dump(t, host)); diff != "" {
						t.Fatalf("after round %d (-before +after):\n%s", round+1, diff)
					}
				}
			}
		})
	}
}
