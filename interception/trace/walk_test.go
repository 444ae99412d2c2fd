// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// capture is the smallest plan of a sidecar.
func capture(b *interception.Builder) {
	inbound := b.NAT("inbound")
	inbound.Entry(interception.Prerouting, interception.Match{L4: interception.TCP()}, "connections to the pod")
	inbound.Do("in.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15006}, "inbound to the proxy")
	output := b.NAT("output")
	output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
	output.Do("out.self", interception.Match{Out: interception.Is(interception.Interfaces("lo")), Dst: interception.Not(set("127.0.0.0/8")), L4: interception.TCP(), UID: interception.Is(interception.UIDs(proxy))},
		interception.RedirectTo{Port: 15006}, "the pod calls itself")
	output.Do("out.local", interception.Match{Out: interception.Is(interception.Interfaces("lo"))}, interception.Return{}, "local stays")
	output.Do("out.proxy", interception.Match{UID: interception.Is(interception.UIDs(proxy))}, interception.Return{}, "the proxy is free")
	output.Do("out.capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "outbound to the proxy")
}

func TestWalk(t *testing.T) {
	t.Parallel()
	world := pod(build(t, capture))
	for name, c := range map[string]struct {
		packet trace.Packet
		want   string
	}{
		"outbound v4":                 {connect(application, "192.0.2.1:80"), "delivered to outbound (proxy) at 127.0.0.1:15001, originally 192.0.2.1:80; out.capture: outbound to the proxy"},
		"outbound v6":                 {connect(application, "[2001:db8::1]:80"), "delivered to outbound (proxy) at [::1]:15001, originally [2001:db8::1]:80; out.capture: outbound to the proxy"},
		"outbound udp":                {datagram(connect(application, "192.0.2.1:53")), "sent by eth0 to 192.0.2.1:53; no rule decided"},
		"proxy out":                   {connect(proxy, "192.0.2.1:80"), "sent by eth0 to 192.0.2.1:80; out.proxy: the proxy is free"},
		"proxy to own address":        {connect(proxy, "10.244.0.2:80"), "delivered to inbound (proxy) at 127.0.0.1:15006, originally 10.244.0.2:80; out.self: the pod calls itself"},
		"proxy to loopback":           {connect(proxy, "127.0.0.1:8080"), "delivered to application at 127.0.0.1:8080; out.local: local stays"},
		"over lo, own address":        {connect(application, "10.244.0.2:8080"), "delivered to application at 10.244.0.2:8080; out.local: local stays"},
		"over lo, own v6":             {connect(application, "[fd00:10:244::2]:8080"), "delivered to application at [fd00:10:244::2]:8080; out.local: local stays"},
		"over lo, no listener":        {connect(application, "[::1]:9999"), "refused: nothing listens at [::1]:9999; out.local: local stays"},
		"inbound v4":                  {arriving("10.244.0.9:40000", "10.244.0.2:8080"), "delivered to inbound (proxy) at 10.244.0.2:15006, originally 10.244.0.2:8080; in.capture: inbound to the proxy"},
		"inbound v6":                  {arriving("[fd00:10:244::9]:40000", "[fd00:10:244::2]:8080"), "delivered to inbound (proxy) at [fd00:10:244::2]:15006, originally [fd00:10:244::2]:8080; in.capture: inbound to the proxy"},
		"inbound udp":                 {datagram(arriving("10.244.0.9:40000", "10.244.0.2:53")), "refused: nothing listens at 10.244.0.2:53; no rule decided"},
		"inbound, other address":      {arriving("10.244.0.9:40000", "10.50.0.1:80"), "delivered to inbound (proxy) at 10.244.0.2:15006, originally 10.50.0.1:80; in.capture: inbound to the proxy"},
		"inbound to the proxy's port": {arriving("10.244.0.9:40000", "10.244.0.2:15006"), "delivered to inbound (proxy) at 10.244.0.2:15006; in.capture: inbound to the proxy"},
		"inbound to 127.0.0.1":        {arriving("10.244.0.9:40000", "127.0.0.1:80"), "delivered to inbound (proxy) at 10.244.0.2:15006, originally 127.0.0.1:80; in.capture: inbound to the proxy"},
		"inbound to ::1":              {arriving("[fd00:10:244::9]:40000", "[::1]:80"), "unroutable: such an address cannot be seen on this link; no rule decided"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, world, c.packet, c.want)
		})
	}
}

// A redirected packet keeps the source address that was chosen for the original destination.
func TestRedirectKeepsSource(t *testing.T) {
	t.Parallel()
	world := pod(build(t, capture))
	for _, c := range []struct {
		packet trace.Packet
		want   string
	}{
		{connect(application, "192.0.2.1:80"), "10.244.0.2:32768 > 127.0.0.1:15001"},
		{connect(application, "[2001:db8::1]:80"), "[fd00:10:244::2]:32768 > [::1]:15001"},
		{connect(proxy, "10.244.0.2:80"), "10.244.0.2:32768 > 127.0.0.1:15006"},
		{bound(connect(proxy, "10.244.0.2:80"), "127.0.0.6"), "127.0.0.6:32768 > 127.0.0.1:15006"},
		{arriving("10.244.0.9:40000", "10.244.0.2:8080"), "10.244.0.9:40000 > 10.244.0.2:15006"},
	} {
		if got := traced(t, world, c.packet).Header.String(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.packet, got, c.want)
		}
	}
}

// A packet that was redirected from eth0 to lo has the new link in Postrouting, and still the old
// one in the rest of Output.
func TestLinksInHooks(t *testing.T) {
	t.Parallel()
	lo, eth0 := interception.Is(interception.Interfaces("lo")), interception.Is(interception.Interfaces("eth0"))
	outcome := traced(t, pod(build(t, func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{Out: eth0}, "by eth0")
		output.Do("capture", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "to the proxy")
		filter := b.Filter("filter")
		filter.Entry(interception.Output, interception.Match{Out: eth0, Dst: interception.Is(set("127.0.0.1/32"))}, "after the redirect, still by eth0")
		filter.Entry(interception.Input, interception.Match{In: lo, L4: interception.TCP().To(interception.Ports(15001))}, "in by lo")
		mangle := b.Mangle("mangle")
		mangle.Entry(interception.Postrouting, interception.Match{Out: lo, UID: interception.Is(interception.UIDs(application))}, "out by lo, with owner")
		raw := b.Raw("raw")
		raw.Entry(interception.Prerouting, interception.Match{In: lo, Dst: interception.Is(set("127.0.0.1/32"))}, "in by lo, with the new destination")
	})), connect(application, "192.0.2.1:80"))
	want := []interception.RuleID{
		"nat.output.output", "capture", "filter.output.filter", "mangle.postrouting.mangle", "raw.prerouting.raw", "filter.input.filter",
	}
	expectPath(t, outcome, want...)
}

// The translation of a connection is settled once for each direction, also when no rule applied.
func TestNATIsAskedOnce(t *testing.T) {
	t.Parallel()
	world := pod(build(t, func(b *interception.Builder) {
		chain := b.NAT("chain")
		for _, hook := range interception.NAT.Hooks() {
			chain.Entry(hook, interception.Match{}, "every hook of nat")
		}
	}))
	for _, c := range []struct {
		packet trace.Packet
		want   []interception.RuleID
	}{
		{connect(application, "127.0.0.1:8080"), []interception.RuleID{"nat.output.chain", "nat.postrouting.chain"}},
		{connect(application, "192.0.2.1:80"), []interception.RuleID{"nat.output.chain", "nat.postrouting.chain"}},
		{arriving("10.244.0.9:40000", "10.244.0.2:8080"), []interception.RuleID{"nat.prerouting.chain", "nat.input.chain"}},
	} {
		expectPath(t, traced(t, world, c.packet), c.want...)
	}
	onlyPrerouting := pod(build(t, func(b *interception.Builder) {
		b.NAT("chain").Entry(interception.Prerouting, interception.Match{}, "what comes in")
	}))
	expectPath(t, traced(t, onlyPrerouting, connect(application, "10.244.0.2:8080")))
}

func TestOutcomeOfSocketWithoutRoute(t *testing.T) {
	t.Parallel()
	world := trace.Sidecar(build(t, capture), trace.SidecarOptions{Addresses: addresses("10.244.0.2/24", "fe80::1/64")})
	expect(t, world, connect(application, "[2001:db8::1]:80"), "unroutable: no link leads to the destination; no rule decided")
}

func expectPath(t *testing.T, outcome trace.Outcome, want ...interception.RuleID) {
	t.Helper()
	var got []interception.RuleID
	for _, step := range outcome.Path {
		got = append(got, step.Rule.ID)
	}
	if len(got) != len(want) {
		t.Fatalf("path has %v, want %v\n%s", got, want, outcome.Report())
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("step %d is %s, want %s\n%s", i, got[i], want[i], outcome.Report())
		}
	}
}
