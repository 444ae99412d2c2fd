// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/route"
)

// edited is a plan with all that can be edited.
func edited(t testing.TB) *interception.Plan {
	t.Helper()
	return build(t, "mesh-test", func(b *interception.Builder) {
		b.Address(interception.Address{ID: "an.address", Device: "lo", Prefix: netip.MustParsePrefix("10.9.0.1/32"), Why: "an address"})
		b.Sysctl(interception.Sysctl{ID: "a.sysctl", Key: localnet, Value: 1, Why: "a sysctl"})
		b.Route(interception.Route{
			ID: "a.route", Type: interception.RouteLocal, Destination: netip.MustParsePrefix("0.0.0.0/0"), Device: "lo", Table: 133, Why: "a route",
		})
		b.PolicyRule(interception.PolicyRule{
			ID: "a.rule", Family: interception.IPv4, Mark: interception.WholeMark(0x539), Table: 133, Priority: 1337, Why: "a policy rule",
		})
		fixed := b.Set("fixed", prefixes("10.0.0.0/8", "192.0.2.0/24"), "some prefixes")
		live := b.LiveSet("live", interception.IPv4, "members come and go")
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "what leaves")
		output.Do("a.user", interception.Match{UID: interception.Is(interception.UIDs(1337))}, interception.Return{}, "the proxy")
		output.Do("a.set", interception.Match{DstSet: interception.Is(fixed)}, interception.Return{}, "left alone")
		output.Do("a.port", interception.Match{L4: interception.TCP().To(interception.Ports(22, 80))}, interception.Return{}, "ports")
		output.Do("a.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "to the proxy")
		inbound := b.Mangle("inbound")
		inbound.Entry(interception.Prerouting, interception.Match{}, "what comes")
		inbound.Do("a.live", interception.Match{SrcSet: interception.Is(live)}, interception.Return{}, "pods")
		inbound.Do("a.tproxy", interception.Match{L4: interception.TCP()},
			interception.TProxyTo{Port: 15006, Mark: interception.WholeMark(0x539)}, "to the proxy")
		input := b.Filter("input")
		input.Entry(interception.Input, interception.Match{}, "what is delivered")
		input.Do("a.reject", interception.Match{In: interception.Is(interception.Interfaces("eth*", "lo"))}, interception.Reject{}, "refused")
	})
}

// edit is another program's change in a namespace, with the drift to report.
type edit struct {
	do   func(t *testing.T, ns *pod)
	want []string
}

// text edits nft's listing of the owner's table, and loads it again.
func text(change func(listing string) string) func(*testing.T, *pod) {
	return func(t *testing.T, ns *pod) {
		t.Helper()
		listing := ns.nft(t, "", "-n", "list", "table", "inet", "mesh-test")
		changed := change(listing)
		if changed == listing {
			t.Fatalf("nothing is changed in\n%s", listing)
		}
		ns.load(t, "delete table inet mesh-test\n"+changed)
	}
}

func replaced(was, is string) func(*testing.T, *pod) {
	return text(func(listing string) string { return strings.Replace(listing, was, is, 1) })
}

// lines returns the lines of a rule, by its comment.
func lines(listing, id string) (found []string) {
	for line := range strings.Lines(listing) {
		if strings.Contains(line, `comment "`+id+` `) {
			found = append(found, line)
		}
	}
	return found
}

func rules(change func(lines ...string) string, ids ...string) func(*testing.T, *pod) {
	return text(func(listing string) string {
		var all []string
		for _, id := range ids {
			all = append(all, lines(listing, id)...)
		}
		return strings.Replace(listing, strings.Join(all, ""), change(all...), 1)
	})
}

func commands(list ...string) func(*testing.T, *pod) {
	return func(t *testing.T, ns *pod) {
		t.Helper()
		for _, command := range list {
			words := strings.Fields(command)
			ns.Run(t, "", words...)
		}
	}
}

func script(text string) func(*testing.T, *pod) {
	return func(t *testing.T, ns *pod) {
		t.Helper()
		ns.load(t, text)
	}
}

// TestEdits makes one edit each: the drift is exactly that edit, and the next Apply repairs it.
func TestEdits(t *testing.T) {
	t.Parallel()
	all := edits()
	if len(all) < 30 {
		t.Errorf("%d edits, want 30", len(all))
	}
	for name, e := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns, plan := newPod(t), edited(t)
			ns.apply(t, plan)
			e.do(t, ns)
			if diff := cmp.Diff(e.want, ns.drifts(t, plan)); diff != "" {
				t.Errorf("said of it (-want +got):\n%s\n%s", diff, ns.ruleset(t))
			}
			ns.apply(t, plan)
			if left := ns.drifts(t, plan); left != nil {
				t.Errorf("after another Apply:\n%s", strings.Join(left, "\n"))
			}
		})
	}
}

// drifts returns the drift, including other programs' chains.
func (p *pod) drifts(t testing.TB, plan *interception.Plan) []string {
	t.Helper()
	var lines []string
	for _, drift := range interception.Diff(plan, p.observeAll(t, plan.Owner)) {
		lines = append(lines, drift.String())
	}
	return lines
}

func edits() map[string]edit {
	protocol := fmt.Sprint(route.Protocol("mesh-test"))
	swap := func(lines ...string) string { slices.Reverse(lines); return strings.Join(lines, "") }
	gone := func(...string) string { return "" }
	return map[string]edit{
		"two rules are swapped": {rules(swap, "a.user", "a.set"), []string{
			"nat/output: moved a.user (the proxy): want uid 1337 -> return: got uid 1337 -> return",
		}},
		"the last rule is the first": {rules(func(l ...string) string { return l[3] + l[0] + l[1] + l[2] }, "a.user", "a.set", "a.port", "a.capture"), []string{
			"nat/output: moved a.capture (to the proxy): want tcp -> redirect to :15001: got tcp -> redirect to :15001",
		}},
		"a rule is flushed": {rules(gone, "a.port"), []string{
			"nat/output: missing a.port (ports): want tcp dport 22,80 -> return",
		}},
		"a rule is twice": {rules(func(l ...string) string { return l[0] + l[0] }, "a.user"), []string{
			"nat/output: extra: got uid 1337 -> return",
		}},
		"a verdict is another": {rules(func(l ...string) string { return strings.Replace(l[0], "return", "accept", 1) }, "a.user"), []string{
			"nat/output: changed a.user (the proxy): want uid 1337 -> return: got uid 1337 -> accept",
		}},
		"a user is another": {rules(func(l ...string) string { return strings.Replace(l[0], "1337", "0", 1) }, "a.user"), []string{
			"nat/output: changed a.user (the proxy): want uid 1337 -> return: got uid 0 -> return",
		}},
		"a condition is gone": {rules(func(l ...string) string { return strings.Replace(l[0], "meta skuid 1337", "", 1) }, "a.user"), []string{
			"nat/output: changed a.user (the proxy): want uid 1337 -> return: got any -> return",
		}},
		"a condition is more": {rules(func(l ...string) string { return strings.Replace(l[0], "meta skuid", "meta mark 0x1 meta skuid", 1) }, "a.user"), []string{
			"nat/output: changed a.user (the proxy): want uid 1337 -> return: got uid 1337 mark 0x1 -> return",
		}},
		"a port is more": {replaced("{ 22, 80 }", "{ 22, 80, 443 }"), []string{
			"nat/output: changed a.port (ports): want tcp dport 22,80 -> return: got tcp dport 22,80,443 -> return",
		}},
		"a port is another": {replaced("redirect to :15001", "redirect to :15002"), []string{
			"nat/output: changed a.capture (to the proxy): want tcp -> redirect to :15001: got tcp -> redirect to :15002",
		}},
		"a rule ahead": {rules(func(l ...string) string { return "tcp dport 80 return\n" + l[0] }, "a.user"), []string{
			"nat/output: extra: got tcp dport 80 -> return",
		}},
		"a rule after": {rules(func(l ...string) string { return l[0] + "udp dport 53 return\n" }, "a.capture"), []string{
			"nat/output: extra: got udp dport 53 -> return",
		}},
		"a rule with a limit": {rules(func(l ...string) string { return "limit rate 1/second accept\n" + l[0] }, "a.user"), []string{
			"nat/output: extra: got any -> opaque: limit 0x0c00010000000000000000010c0002000000000000000001080003000000000508000400000000000800050000000000, accept",
		}},
		"a rule goes elsewhere": {script("add chain inet mesh-test nat-else\ninsert rule inet mesh-test nat-output goto nat-else"), []string{
			"nat/output: extra: got any -> opaque: goto nat-else",
			"nat/else: extra: got chain else",
		}},
		"all rules are flushed": {commands("nft flush chain inet mesh-test nat-output"), []string{
			"nat/output: missing a.user (the proxy): want uid 1337 -> return",
			"nat/output: missing a.set (left alone): want dst @fixed -> return",
			"nat/output: missing a.port (ports): want tcp dport 22,80 -> return",
			"nat/output: missing a.capture (to the proxy): want tcp -> redirect to :15001",
		}},
		"the jump is dropped": {commands("nft flush chain inet mesh-test hook.nat.output"), []string{
			"nat hook output: missing nat.output.output (what leaves): want hook output: tcp -> jump output",
		}},
		"the jump is narrower": {replaced("meta l4proto 6 jump nat-output", "tcp dport 80 jump nat-output"), []string{
			"nat hook output: changed nat.output.output (what leaves): want hook output: tcp -> jump output: got hook output: tcp dport 80 -> jump output",
		}},
		"a rule stands in the hook": {commands("nft insert rule inet mesh-test hook.nat.output accept"), []string{
			"nat hook output: extra: got any -> accept",
		}},
		"the chain has another name": {text(func(l string) string { return strings.ReplaceAll(l, "nat-output", "nat-other") }), []string{
			"nat hook output: changed nat.output.output (what leaves): want hook output: tcp -> jump output: got hook output: tcp -> jump other",
			"nat/output: changed: want chain output: got chain other",
		}},
		"the chain has no name of ours": {text(func(l string) string { return strings.ReplaceAll(l, "nat-output", "other") }), []string{
			"nat hook output: missing nat.output.output (what leaves): want hook output: tcp -> jump output",
			"nat/output: missing: want chain output",
			"nat/output: missing a.user (the proxy): want uid 1337 -> return",
			"nat/output: missing a.set (left alone): want dst @fixed -> return",
			"nat/output: missing a.port (ports): want tcp dport 22,80 -> return",
			"nat/output: missing a.capture (to the proxy): want tcp -> redirect to :15001",
			"nat hook output: extra: got tcp -> opaque: jump other",
			"chain other: extra: got a chain: uid 1337 -> return; dst @fixed -> return; tcp dport 22,80 -> return; tcp -> redirect to :15001",
		}},
		"a chain is more": {commands("nft add chain inet mesh-test nat-more"), []string{
			"nat/more: extra: got chain more",
		}},
		"a chain in a hook is more": {script("add chain inet mesh-test more { type filter hook input priority 5; }\nadd rule inet mesh-test more drop"), []string{
			"chain more: extra: got a chain of type filter in hook input with priority 5 and policy accept: any -> drop",
		}},
		"another priority": {replaced("hook output priority -100", "hook output priority -90"), []string{
			"nat hook output: changed nat.output.output (what leaves): want hook output: tcp -> jump output: got hook output+10: tcp -> jump output",
		}},
		"another hook": {replaced("type filter hook input priority 0", "type filter hook forward priority 0"), []string{
			"filter hook input: missing filter.input.input (what is delivered): want hook input: any -> jump input",
			"filter hook forward: extra: got hook forward: any -> jump input",
		}},
		"another type": {replaced("type filter hook prerouting priority -150", "type nat hook prerouting priority -150"), []string{
			"mangle hook prerouting: changed: want type filter: got type nat",
		}},
		"another policy": {replaced("hook input priority 0; policy accept", "hook input priority 0; policy drop"), []string{
			"filter hook input: changed: want policy accept: got policy drop",
		}},
		"nothing after the proxy": {text(func(l string) string { return strings.Replace(l, lines(l, "a.tproxy")[1], "", 1) }), []string{
			"mangle/inbound: changed a.tproxy (to the proxy): want tcp -> tproxy to :15006 mark 0x539: " +
				"got tcp -> opaque: tproxy to :15006 mark 0x539, and nothing else",
		}},
		"another answer": {replaced("iifname \"eth*\" reject comment", "iifname \"eth*\" reject with icmpx host-unreachable comment"), []string{
			"filter/input: changed a.reject (refused): want in eth*,lo -> reject: got in lo -> reject",
			"filter/input: extra: got in eth* tcp -> reject",
			"filter/input: extra: got in eth* -> opaque: reject 0x08000100000000020500020002000000",
		}},
		"an interface is gone": {text(func(l string) string { return strings.Replace(l, strings.Join(lines(l, "a.reject")[:2], ""), "", 1) }), []string{
			"filter/input: changed a.reject (refused): want in eth*,lo -> reject: got in eth* -> reject",
		}},
		"the table is dormant": {commands("nft add table inet mesh-test { flags dormant ; }"), []string{
			"table inet mesh-test: changed: want active: got dormant: no packet is given to its chains",
		}},
		"the table is gone": {commands("nft delete table inet mesh-test"), []string{
			"sysctls: missing a.sysctl (a sysctl): want sysctl ipv4/conf/all/route_localnet = 1",
			"set fixed: missing: want fixed set of v4",
			"set fixed: missing: want 10.0.0.0/8",
			"set fixed: missing: want 192.0.2.0/24",
			"set live: missing: want live set of v4",
			"nat hook output: missing nat.output.output (what leaves): want hook output: tcp -> jump output",
			"nat/output: missing: want chain output",
			"nat/output: missing a.user (the proxy): want uid 1337 -> return",
			"nat/output: missing a.set (left alone): want dst @fixed -> return",
			"nat/output: missing a.port (ports): want tcp dport 22,80 -> return",
			"nat/output: missing a.capture (to the proxy): want tcp -> redirect to :15001",
			"mangle hook prerouting: missing mangle.prerouting.inbound (what comes): want hook prerouting: any -> jump inbound",
			"mangle/inbound: missing: want chain inbound",
			"mangle/inbound: missing a.live (pods): want src @live -> return",
			"mangle/inbound: missing a.tproxy (to the proxy): want tcp -> tproxy to :15006 mark 0x539",
			"filter hook input: missing filter.input.input (what is delivered): want hook input: any -> jump input",
			"filter/input: missing: want chain input",
			"filter/input: missing a.reject (refused): want in eth*,lo -> reject",
		}},
		"a prefix is gone": {replaced("10.0.0.0/8, 192.0.2.0/24", "10.0.0.0/8"), []string{
			"set fixed: missing: want 192.0.2.0/24",
		}},
		"a prefix is wider": {replaced("192.0.2.0/24", "192.0.0.0/16"), []string{
			"set fixed: missing: want 192.0.2.0/24",
			"set fixed: extra: got 192.0.0.0/16",
		}},
		"a fixed set can change": {replaced("flags constant,interval", "flags interval"), []string{
			"set fixed: changed: want fixed set of v4: got live set of v4",
		}},
		"members end": {replaced("flags interval\n", "flags interval,timeout\n"), []string{
			"set live: changed: want plain members: got a set with a timeout",
		}},
		"a set is more": {commands("nft add set inet mesh-test more { type inet_service ; }"), []string{
			"set more: extra: got a set of 2 bytes",
		}},
		"an address is gone": {commands("ip address del 10.9.0.1/32 dev lo"), []string{
			"addresses: missing an.address (an address): want address 10.9.0.1/32 dev lo",
		}},
		"a sysctl is another": {commands("sysctl -w net." + strings.ReplaceAll(localnet, "/", ".") + "=0"), []string{
			"sysctls: changed a.sysctl (a sysctl): want sysctl ipv4/conf/all/route_localnet = 1: got sysctl ipv4/conf/all/route_localnet = 0",
		}},
		"a route is gone": {commands("ip route flush table 133"), []string{
			"routes: missing a.route (a route): want route local 0.0.0.0/0 dev lo table 133",
		}},
		"a route has a metric": {commands("ip route flush table 133", "ip route add local default dev lo table 133 metric 5 proto "+protocol), []string{
			"routes: changed a.route (a route): want route local 0.0.0.0/0 dev lo table 133: got route local 0.0.0.0/0 dev lo metric 5 table 133",
		}},
		"a route is of one type of service": {commands("ip route flush table 133", "ip route add local default dev lo table 133 tos 8 proto "+protocol), []string{
			"routes: changed a.route (a route): want route local 0.0.0.0/0 dev lo table 133: got route local 0.0.0.0/0 dev lo table 133, tos 8",
		}},
		"a route is of another type": {commands("ip route flush table 133", "ip route add blackhole default table 133 proto "+protocol), []string{
			"routes: changed a.route (a route): want route local 0.0.0.0/0 dev lo table 133: got route blackhole 0.0.0.0/0 table 133",
		}},
		"a route is of a type of no plan": {commands("ip route flush table 133", "ip route add prohibit default table 133 proto "+protocol), []string{
			"routes: changed a.route (a route): want route local 0.0.0.0/0 dev lo table 133: got route unicast 0.0.0.0/0 table 133, type 8",
		}},
		"a route is more": {commands("ip route add local 10.8.0.0/16 dev lo table 134 proto " + protocol), []string{
			"routes: extra: got route local 10.8.0.0/16 dev lo table 134",
		}},
		"a policy rule is gone": {commands("ip rule del priority 1337"), []string{
			"policy rules: missing a.rule (a policy rule): want policy rule v4 priority 1337 mark 0x539 table 133",
		}},
		"a policy rule comes later": {commands("ip rule del priority 1337", "ip rule add fwmark 0x539 table 133 priority 1400 protocol "+protocol), []string{
			"policy rules: changed a.rule (a policy rule): want policy rule v4 priority 1337 mark 0x539 table 133: got policy rule v4 priority 1400 mark 0x539 table 133",
		}},
		"a policy rule is twice": {commands("ip rule add fwmark 0x539 table 133 priority 1338 protocol " + protocol), []string{
			"policy rules: extra: got policy rule v4 priority 1338 mark 0x539 table 133",
		}},
		"a policy rule is narrower": {commands("ip rule del priority 1337", "ip rule add fwmark 0x539 iif lo table 133 priority 1337 protocol "+protocol), []string{
			"policy rules: changed a.rule (a policy rule): want policy rule v4 priority 1337 mark 0x539 table 133: got policy rule v4 priority 1337 in lo mark 0x539 table 133",
		}},
		"a policy rule asks for more": {commands("ip rule del priority 1337", "ip rule add fwmark 0x539 oif lo table 133 priority 1337 protocol "+protocol), []string{
			"policy rules: changed a.rule (a policy rule): want policy rule v4 priority 1337 mark 0x539 table 133: got policy rule v4 priority 1337 mark 0x539 table 133, attribute 17 6c6f00",
		}},
		"a policy rule is of another table": {commands("ip rule del priority 1337", "ip rule add fwmark 0x539 table 134 priority 1337 protocol "+protocol), []string{
			"policy rules: changed a.rule (a policy rule): want policy rule v4 priority 1337 mark 0x539 table 133: got policy rule v4 priority 1337 mark 0x539 table 134",
		}},
		"counters, which decide nothing": {rules(func(l ...string) string { return strings.Replace(l[0], "return", "counter return", 1) }, "a.user"), nil},
		"comments, which prove nothing":  {replaced("a.user ", "b.user "), nil},
		"members of a live set":          {commands("nft add element inet mesh-test set-live { 10.0.0.1 }"), nil},
	}
}
