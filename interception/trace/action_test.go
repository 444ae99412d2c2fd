// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// The conditions and marks of the tests.
var (
	any4  = interception.Match{Family: interception.IPv4, L4: interception.TCP()}
	any6  = interception.Match{Family: interception.IPv6, L4: interception.TCP()}
	whole = interception.WholeMark
)

func marked(value, mask interception.Mark) interception.MarkBits {
	return interception.MarkBits{Value: value, Mask: mask}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fill       func(*interception.ChainRef[interception.MangleAction])
		socket     interception.Mark
		mark, conn interception.Mark
	}{
		"of the socket": {fill: func(*interception.ChainRef[interception.MangleAction]) {}, socket: 7, mark: 7},
		"set": {fill: func(c *interception.ChainRef[interception.MangleAction]) {
			c.Do("a", interception.Match{}, interception.SetMark{Mark: whole(0x12)}, "why")
		}, socket: 7, mark: 0x12},
		"set some bits": {fill: func(c *interception.ChainRef[interception.MangleAction]) {
			c.Do("a", interception.Match{}, interception.SetMark{Mark: marked(0x100, 0x300)}, "why")
		}, socket: 0x207, mark: 0x107},
		"saved": {fill: func(c *interception.ChainRef[interception.MangleAction]) {
			c.Do("a", interception.Match{}, interception.SaveMark{}, "why")
		}, socket: 7, mark: 7, conn: 7},
		"some bits saved": {fill: func(c *interception.ChainRef[interception.MangleAction]) {
			c.Do("a", interception.Match{}, interception.SetConnMark{Mark: whole(0xf0)}, "why")
			c.Do("b", interception.Match{}, interception.SaveMark{Mask: 0x3f}, "why")
		}, socket: 0x55, mark: 0x55, conn: 0xd5},
		"restored": {fill: func(c *interception.ChainRef[interception.MangleAction]) {
			c.Do("a", interception.Match{}, interception.SetConnMark{Mark: whole(3)}, "why")
			c.Do("b", interception.Match{}, interception.RestoreMark{}, "why")
		}, socket: 7, mark: 3, conn: 3},
		"some bits restored": {fill: func(c *interception.ChainRef[interception.MangleAction]) {
			c.Do("a", interception.Match{}, interception.SetConnMark{Mark: marked(3, 0xf)}, "why")
			c.Do("b", interception.Match{}, interception.RestoreMark{Mask: 1}, "why")
		}, socket: 6, mark: 7, conn: 3},
		"after a log": {fill: func(c *interception.ChainRef[interception.MangleAction]) {
			c.Do("a", interception.Match{}, interception.Log{Prefix: "seen"}, "why")
			c.Do("b", interception.Match{}, interception.SetMark{Mark: whole(1)}, "why")
		}, mark: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := pod(build(t, func(b *interception.Builder) { c.fill(entered(b.Mangle("chain"))) }))
			packet := connect(application, "127.0.0.1:8080")
			packet.From = trace.Socket{UID: application, Mark: c.socket}
			outcome := traced(t, world, packet)
			if outcome.Verdict != trace.Delivered || outcome.Header.Mark != c.mark || outcome.Flow.Mark != c.conn {
				t.Errorf("mark 0x%x, connmark 0x%x, want 0x%x and 0x%x\n%s", outcome.Header.Mark, outcome.Flow.Mark, c.mark, c.conn, outcome.Report())
			}
		})
	}
}

// A packet that is not tracked has no connection mark to read or write.
func TestMarksOfUntracked(t *testing.T) {
	t.Parallel()
	outcome := traced(t, pod(build(t, func(b *interception.Builder) {
		entered(b.Raw("raw")).Do("notrack", interception.Match{}, interception.NoTrack{}, "why")
		chain := entered(b.Mangle("chain"))
		chain.Do("write", interception.Match{}, interception.SetConnMark{Mark: whole(1)}, "why")
		chain.Do("save", interception.Match{}, interception.SaveMark{}, "why")
		chain.Do("restore", interception.Match{}, interception.RestoreMark{}, "why")
		chain.Do("zero", interception.Match{ConnMark: interception.Is(whole(0))}, interception.Drop{}, "why")
		redirect(entered(b.NAT("nat")))
	})), connect(application, "127.0.0.1:8080"))
	if outcome.String() != "delivered to application at 127.0.0.1:8080; no rule decided" || !outcome.Flow.Untracked {
		t.Errorf("%s\n%+v", outcome.Report(), outcome.Flow)
	}
}

// The first zone counts, and later ones have no effect once connection tracking has seen the
// packet. Linux 6.18 does so under nf_tables.
func TestZonesAndUntracked(t *testing.T) {
	t.Parallel()
	zone := func(z uint16) interception.RawAction { return interception.SetZone{Zone: z} }
	for name, c := range map[string]struct {
		output, prerouting []interception.RawAction
		tracked            bool
		zone               uint16
	}{
		"nothing":                  {tracked: true},
		"a zone":                   {output: []interception.RawAction{zone(2)}, tracked: true, zone: 2},
		"two zones":                {output: []interception.RawAction{zone(2), zone(3)}, tracked: true, zone: 2},
		"the zone of all":          {output: []interception.RawAction{zone(0), zone(3)}, tracked: true},
		"a zone when back by lo":   {prerouting: []interception.RawAction{zone(3)}, tracked: true},
		"no tracking":              {output: []interception.RawAction{interception.NoTrack{}}},
		"no tracking, then a zone": {output: []interception.RawAction{interception.NoTrack{}, zone(2)}, tracked: true, zone: 2},
		"no tracking, then a zone when back by lo": {
			output: []interception.RawAction{interception.NoTrack{}}, prerouting: []interception.RawAction{zone(3)}, tracked: true, zone: 3,
		},
		"a zone, then no tracking": {output: []interception.RawAction{zone(2), interception.NoTrack{}}, tracked: true, zone: 2},
		"none when back by lo":     {prerouting: []interception.RawAction{interception.NoTrack{}}, tracked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outcome := traced(t, pod(build(t, func(b *interception.Builder) {
				for hook, actions := range map[interception.Hook][]interception.RawAction{interception.Output: c.output, interception.Prerouting: c.prerouting} {
					chain := b.Raw(interception.ChainName("at-" + hook.String()))
					chain.Entry(hook, interception.Match{}, "why")
					for i, action := range actions {
						chain.Do(interception.RuleID(hook.String()+"."+string(rune('a'+i))), interception.Match{}, action, "why")
					}
				}
			})), connect(application, "127.0.0.1:8080"))
			if outcome.Flow.Untracked == c.tracked || c.tracked && outcome.Flow.Zone != c.zone {
				t.Errorf("the flow is %+v\n%s", outcome.Flow, outcome.Report())
			}
		})
	}
}

// TestZoneOfOneDirection has a zone for what arrives, in the original direction only: connections
// that begin there have entries of their own, and replies are found without it, whichever way they
// go.
func TestZoneOfOneDirection(t *testing.T) {
	t.Parallel()
	world := pod(build(t, func(b *interception.Builder) {
		chain := b.Raw("chain")
		chain.Entry(interception.Prerouting, interception.Match{}, "why")
		chain.Do("zone", interception.Match{}, interception.SetZone{Zone: 3, Direction: interception.DirectionOriginal}, "why")
	}))
	began, is := func(of trace.Outcome) bool { return !of.Flow.Answered && of.Flow.Zone == 3 }, func(a, b *trace.Flow) bool {
		return a.Zone == b.Zone && a.ZoneDirection == b.ZoneDirection && b.Answered
	}
	arrives := trace.Packet{
		From: trace.Arrival{Link: "eth0"}, Protocol: interception.ProtocolTCP,
		Src: netip.MustParseAddrPort("192.0.2.7:40000"), Dst: netip.MustParseAddrPort("10.244.0.2:8080"),
	}
	first := traced(t, world, arrives)
	answer := traced(t, world, first.Answer(trace.Socket{}))
	again := traced(t, world, trace.Outcome{Packet: first.Packet, Flow: answer.Flow}.Next())
	if !began(first) || !is(first.Flow, answer.Flow) || !is(first.Flow, again.Flow) || again.Verdict != trace.Delivered {
		t.Errorf("what arrives: %+v, the answer %+v, a further packet %+v", first.Flow, answer.Flow, again.Flow)
	}

	leaving := traced(t, world, connect(application, "192.0.2.7:443"))
	answered := traced(t, world, leaving.Answer(trace.Arrival{Link: "eth0"}))
	if leaving.Flow.Zone != 0 || !is(leaving.Flow, answered.Flow) || answered.Socket == nil {
		t.Errorf("what leaves: %+v, the answer %+v", leaving.Flow, answered.Flow)
	}

	equal := arrives
	equal.Flow = &trace.Flow{
		Protocol: arrives.Protocol, Original: trace.Tuple{Src: arrives.Src, Dst: arrives.Dst}, Reply: trace.Tuple{Src: arrives.Dst, Dst: arrives.Src},
	}
	if outcome := traced(t, world, equal); !began(outcome) {
		t.Errorf("with an equal connection in the default zone: %+v", outcome.Flow)
	}
}

func TestReject(t *testing.T) {
	t.Parallel()
	for _, hook := range []interception.Hook{interception.Output, interception.Input} {
		outcome := traced(t, pod(build(t, func(b *interception.Builder) {
			chain := b.Filter("chain")
			chain.Entry(hook, interception.Match{}, "why")
			chain.Do("reject", interception.Match{L4: interception.TCP()}, interception.Reject{}, "why")
			chain.Do("drop", interception.Match{}, interception.Drop{}, "why")
		})), connect(application, "127.0.0.1:8080"))
		if outcome.String() != "rejected on the way to 127.0.0.1:8080; reject: why" {
			t.Errorf("in %s: %s", hook, outcome.Report())
		}
	}
}

// TestKeptSource has two plans decide about a source, in the order of their hooks: nothing rewrites
// what the first one keeps, as nothing does what the first one has translated.
func TestKeptSource(t *testing.T) {
	t.Parallel()
	sources := func(offset int32, action interception.NATAction) *interception.Plan {
		return build(t, func(b *interception.Builder) {
			chain := b.NAT("sources")
			chain.EntryAt(interception.Postrouting, offset, interception.Match{}, "why")
			chain.Do("source", any4, action, "why")
		})
	}
	translated := interception.SNATTo{Addr: netip.MustParseAddr("10.244.0.99")}
	for _, c := range []struct {
		first interception.NATAction
		want  string
	}{
		{interception.SNATTo{Keep: true}, "10.244.0.2:32768"}, {interception.Accept{}, "10.244.0.99:32768"},
	} {
		got := traced(t, pod(sources(-10, c.first), sources(0, translated)), connect(application, "192.0.2.1:80"))
		if got.Header.Src.String() != c.want {
			t.Errorf("%s first: sent from %s, want %s\n%s", c.first, got.Header.Src, c.want, got.Report())
		}
	}
}

// Translations of either address, with the answers that come back.
func TestTranslation(t *testing.T) {
	t.Parallel()
	to := netip.MustParseAddr
	dnat := func(match interception.Match, hook interception.Hook, addr string, port interception.Port) func(*interception.Builder) {
		return func(b *interception.Builder) {
			chain := b.NAT("dnat")
			chain.Entry(hook, interception.Match{}, "why")
			chain.Do("dnat", match, interception.DNATTo{Addr: to(addr), Port: port}, "why")
		}
	}
	snat := func(match interception.Match, hook interception.Hook, addr string, port interception.Port) func(*interception.Builder) {
		return func(b *interception.Builder) {
			chain := b.NAT("snat")
			chain.Entry(hook, interception.Match{}, "why")
			chain.Do("snat", match, interception.SNATTo{Addr: to(addr), Port: port}, "why")
		}
	}
	peer := trace.Arrival{Link: "eth0"}
	for name, c := range map[string]struct {
		fill         func(*interception.Builder)
		packet       trace.Packet
		from         trace.Origin
		there, back  string
		first, reply string
	}{
		"destination out, v4": {
			dnat(any4, interception.Output, "198.51.100.7", 0), connect(application, "192.0.2.1:80"), peer,
			"10.244.0.2:32768 > 198.51.100.7:80", "192.0.2.1:80 > 10.244.0.2:32768",
			"sent by eth0 to 198.51.100.7:80; dnat: why",
			"delivered to uid 1000 gid 1000 at 10.244.0.2:32768, from 192.0.2.1:80; no rule decided",
		},
		"destination and port out, v6, to the pod": {
			dnat(any6, interception.Output, "::1", 8080), connect(application, "[2001:db8::1]:80"), ofApplication(),
			"[fd00:10:244::2]:32768 > [::1]:8080", "[2001:db8::1]:80 > [fd00:10:244::2]:32768",
			"delivered to application at [::1]:8080, originally [2001:db8::1]:80; dnat: why",
			"delivered to uid 1000 gid 1000 at [fd00:10:244::2]:32768, from [2001:db8::1]:80; no rule decided",
		},
		"destination in": {
			dnat(any4, interception.Prerouting, "10.244.0.2", 8080), arriving("10.244.0.9:40000", "10.50.0.1:80"), ofApplication(),
			"10.244.0.9:40000 > 10.244.0.2:8080", "10.50.0.1:80 > 10.244.0.9:40000",
			"delivered to application at 10.244.0.2:8080, originally 10.50.0.1:80; dnat: why",
			"sent by eth0 to 10.244.0.9:40000; no rule decided",
		},
		"source out": {
			snat(any4, interception.Postrouting, "10.244.0.99", 0), connect(application, "192.0.2.1:80"), peer,
			"10.244.0.99:32768 > 192.0.2.1:80", "192.0.2.1:80 > 10.244.0.2:32768",
			"sent by eth0 to 192.0.2.1:80; no rule decided",
			"delivered to uid 1000 gid 1000 at 10.244.0.2:32768, from 192.0.2.1:80; no rule decided",
		},
		"source and port in": {
			snat(any6, interception.Input, "fd00:10:244::aa", 7), arriving("[fd00:10:244::9]:40000", "[fd00:10:244::2]:8080"), ofApplication(),
			"[fd00:10:244::aa]:7 > [fd00:10:244::2]:8080", "[fd00:10:244::2]:8080 > [fd00:10:244::9]:40000",
			"delivered to application at [fd00:10:244::2]:8080; no rule decided",
			"sent by eth0 to [fd00:10:244::9]:40000; no rule decided",
		},
		"source within the pod": {
			snat(any4, interception.Postrouting, "10.244.0.2", 0), connect(application, "127.0.0.1:8080"), ofApplication(),
			"10.244.0.2:32768 > 127.0.0.1:8080", "127.0.0.1:8080 > 127.0.0.1:32768",
			"delivered to application at 127.0.0.1:8080; no rule decided",
			"delivered to uid 1000 gid 1000 at 127.0.0.1:32768, from 127.0.0.1:8080; no rule decided",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			world := pod(build(t, c.fill))
			there := traced(t, world, c.packet)
			back := traced(t, world, there.Answer(c.from))
			for _, got := range [][2]string{
				{there.String(), c.first}, {back.String(), c.reply}, {there.Header.String(), c.there}, {back.Header.String(), c.back},
			} {
				if got[0] != got[1] {
					t.Errorf("got %s\nwant %s\n%s%s", got[0], got[1], there.Report(), back.Report())
				}
			}
		})
	}
}
