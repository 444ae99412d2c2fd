// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

const (
	unreachable = "unroutable: a route says that the destination cannot be reached"
	discarded   = "unroutable: a route discards what goes there"
)

// typed returns a route of a type to everything in table 100, which mark 1 leads to.
func typed(kind interception.RouteType, destination string) interception.Route {
	r := interception.Route{Type: kind, Destination: addresses(destination)[0], Table: 100}
	if kind == interception.RouteUnicast {
		r.Device = "net1"
	}
	return r
}

func TestTypesOfRoutes(t *testing.T) {
	t.Parallel()
	const dst = "198.51.100.1:80"
	with := func(metric uint32, r interception.Route) interception.Route {
		r.Metric = metric
		return r
	}
	inMain := func(r interception.Route) interception.Route {
		r.Table = 0
		return r
	}
	preferring := typed(interception.RouteUnicast, "0.0.0.0/0")
	preferring.Source = netip.MustParseAddr("10.244.0.2")
	for name, c := range map[string]struct {
		routes    []interception.Route
		mark      interception.Mark
		dst, want string
	}{
		"unreachable":           {[]interception.Route{typed(interception.RouteUnreachable, "0.0.0.0/0")}, 1, dst, unreachable},
		"a black hole":          {[]interception.Route{typed(interception.RouteBlackhole, "0.0.0.0/0")}, 1, dst, discarded},
		"without the mark":      {[]interception.Route{typed(interception.RouteUnreachable, "0.0.0.0/0")}, 0, dst, "sent by eth0 to " + dst},
		"another destination":   {[]interception.Route{typed(interception.RouteUnreachable, "10.0.0.0/8")}, 1, dst, "sent by eth0 to " + dst},
		"own addresses":         {[]interception.Route{typed(interception.RouteUnreachable, "0.0.0.0/0")}, 1, "10.244.0.2:8080", "delivered to application at 10.244.0.2:8080"},
		"thrown into main":      {[]interception.Route{typed(interception.RouteThrow, "0.0.0.0/0")}, 1, dst, "sent by eth0 to " + dst},
		"in the main table, v6": {[]interception.Route{inMain(typed(interception.RouteUnreachable, "2001:db8::/32"))}, 0, "[2001:db8::1]:80", unreachable},
		"the longer prefix is thrown": {
			[]interception.Route{typed(interception.RouteThrow, "198.51.100.0/24"), typed(interception.RouteUnicast, "0.0.0.0/0")},
			1, dst,
			"sent by eth0 to " + dst,
		},
		"the longer prefix goes on": {
			[]interception.Route{typed(interception.RouteUnicast, "198.51.100.0/24"), typed(interception.RouteUnreachable, "0.0.0.0/0")},
			1, dst,
			"sent by net1 to " + dst,
		},
		"thrown to the next rule": {
			[]interception.Route{{Type: interception.RouteThrow, Destination: addresses("0.0.0.0/0")[0], Table: 200}, typed(interception.RouteUnicast, "0.0.0.0/0")},
			2, dst, "sent by net1 to " + dst,
		},
		"the lower metric": {
			[]interception.Route{with(5, typed(interception.RouteUnreachable, "0.0.0.0/0")), with(4, typed(interception.RouteUnicast, "0.0.0.0/0"))},
			1, dst,
			"sent by net1 to " + dst,
		},
		"the lower metric, later": {
			[]interception.Route{with(4, typed(interception.RouteUnicast, "0.0.0.0/0")), with(5, typed(interception.RouteUnreachable, "0.0.0.0/0"))},
			1, dst,
			"sent by net1 to " + dst,
		},
		"a metric after the implied default": {
			[]interception.Route{with(5, inMain(typed(interception.RouteUnicast, "0.0.0.0/0")))}, 0, dst, "sent by eth0 to " + dst,
		},
		"a metric before the implied default, v6": {
			[]interception.Route{with(5, inMain(typed(interception.RouteUnreachable, "::/0")))}, 0, "[2001:db8::1]:80", unreachable,
		},
		"an address's own subnet, v6": {
			[]interception.Route{inMain(typed(interception.RouteUnreachable, "fd00:10:244::/64"))},
			0, "[fd00:10:244::9]:80",
			"sent by eth0 to [fd00:10:244::9]:80",
		},
		"a preferred source": {[]interception.Route{preferring}, 1, dst, "sent by net1 to " + dst},
	} {
		packet := connect(application, c.dst)
		packet.From = trace.Socket{UID: application, Mark: c.mark}
		outcome := traced(t, pod(routes(t, c.routes...)), packet)
		if got := outcome.String(); got != c.want+"; no rule decided" {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
		if src := outcome.Packet.Src.Addr(); preferring.Source != src && name == "a preferred source" {
			t.Errorf("%s: the source is %s", name, src)
		}
	}
}

// TestForwardingToNowhere has packets from a link: what a route refuses is never forwarded.
func TestForwardingToNowhere(t *testing.T) {
	t.Parallel()
	for kind, want := range map[interception.RouteType]string{
		interception.RouteUnreachable: unreachable, interception.RouteBlackhole: discarded,
		interception.RouteThrow: "unroutable: no link leads to the destination", // no table follows the main one
	} {
		world := pod(routes(t, interception.Route{Type: kind, Destination: addresses("198.51.100.0/24")[0]}))
		world.Namespaces[0].Forwards = true
		expect(t, world, arriving("10.77.0.9:40000", "198.51.100.1:80"), want+"; no rule decided")
		world.Namespaces[0].Forwards = false
		expect(t, world, arriving("10.77.0.9:40000", "198.51.100.1:80"),
			"unroutable: it is not for this namespace, which does not forward; no rule decided")
	}
}

// TestReroutingIntoRefusal has a mark, written in Output, that leads to a table which refuses all.
func TestReroutingIntoRefusal(t *testing.T) {
	t.Parallel()
	marks := build(t, func(b *interception.Builder) {
		chain := b.Mangle("chain")
		chain.Entry(interception.Output, interception.Match{}, "why")
		chain.Do("mark", interception.Match{}, interception.SetMark{Mark: whole(1)}, "why")
	})
	marks.Owner = "other-plan"
	world := pod(routes(t, typed(interception.RouteUnreachable, "0.0.0.0/0")), marks)
	expect(t, world, connect(application, "198.51.100.1:80"), unreachable+"; no rule decided")
}

// TestForeignPreferredSource prefers an address that the namespace lacks, which no kernel takes.
func TestForeignPreferredSource(t *testing.T) {
	t.Parallel()
	r := typed(interception.RouteUnicast, "0.0.0.0/0")
	r.Source = netip.MustParseAddr("10.9.9.9")
	_, err := trace.Trace(pod(routes(t, r)), connect(application, "198.51.100.1:80"))
	if !errors.Is(err, trace.ErrWorld) || !strings.Contains(err.Error(), "the namespace has no address 10.9.9.9") {
		t.Errorf("got %v, want ErrWorld", err)
	}
}
