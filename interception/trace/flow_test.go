// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// exchange traces a packet, the answer to it and one more packet of the sender, and expects the
// three ends. The answer comes from the origin.
func exchange(t *testing.T, world trace.World, opening trace.Packet, from trace.Origin, want [3]string) trace.Flow {
	t.Helper()
	first := traced(t, world, opening)
	answer := traced(t, world, first.Answer(from))
	next := first.Next()
	next.Flow = answer.Flow
	last := traced(t, world, next)
	for i, outcome := range []trace.Outcome{first, answer, last} {
		if outcome.String() != want[i] {
			t.Errorf("packet %d, %s\n got: %s\nwant: %s\n%s", i, outcome.Packet, outcome, want[i], outcome.Report())
		}
	}
	if last.Flow == nil {
		t.Fatal("no flow is left")
	}
	return *last.Flow
}

// A redirected client sees the original destination in all answers, and the proxy sees its own
// address.
func TestAnswersOfRedirectedConnections(t *testing.T) {
	t.Parallel()
	world := pod(build(t, capture))
	for name, c := range map[string]struct {
		opening trace.Packet
		from    trace.Origin
		want    [3]string
	}{
		"outbound v4": {connect(application, "192.0.2.1:80"), ofProxy(), [3]string{
			"delivered to outbound (proxy) at 127.0.0.1:15001, originally 192.0.2.1:80; out.capture: outbound to the proxy",
			"delivered to uid 1000 gid 1000 at 10.244.0.2:32768, from 192.0.2.1:80; no rule decided",
			"delivered to outbound (proxy) at 127.0.0.1:15001, originally 192.0.2.1:80; no rule decided",
		}},
		"outbound v6": {connect(application, "[2001:db8::1]:80"), ofProxy(), [3]string{
			"delivered to outbound (proxy) at [::1]:15001, originally [2001:db8::1]:80; out.capture: outbound to the proxy",
			"delivered to uid 1000 gid 1000 at [fd00:10:244::2]:32768, from [2001:db8::1]:80; no rule decided",
			"delivered to outbound (proxy) at [::1]:15001, originally [2001:db8::1]:80; no rule decided",
		}},
		"inbound": {arriving("10.244.0.9:40000", "10.244.0.2:8080"), ofProxy(), [3]string{
			"delivered to inbound (proxy) at 10.244.0.2:15006, originally 10.244.0.2:8080; in.capture: inbound to the proxy",
			"sent by eth0 to 10.244.0.9:40000; no rule decided",
			"delivered to inbound (proxy) at 10.244.0.2:15006, originally 10.244.0.2:8080; no rule decided",
		}},
		"the proxy out": {connect(proxy, "192.0.2.1:80"), trace.Arrival{Link: "eth0"}, [3]string{
			"sent by eth0 to 192.0.2.1:80; out.proxy: the proxy is free",
			"delivered to uid 1337 gid 1337 at 10.244.0.2:32768, from 192.0.2.1:80; no rule decided",
			"sent by eth0 to 192.0.2.1:80; no rule decided",
		}},
		"local": {connect(application, "127.0.0.1:8080"), ofApplication(), [3]string{
			"delivered to application at 127.0.0.1:8080; out.local: local stays",
			"delivered to uid 1000 gid 1000 at 127.0.0.1:32768, from 127.0.0.1:8080; no rule decided",
			"delivered to application at 127.0.0.1:8080; no rule decided",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flow := exchange(t, world, c.opening, c.from, c.want)
			if !flow.Answered || !flow.DstSettled || !flow.SrcSettled {
				t.Errorf("the flow is %+v", flow)
			}
		})
	}
	inbound := traced(t, world, arriving("10.244.0.9:40000", "10.244.0.2:8080"))
	if got := traced(t, world, inbound.Answer(ofProxy())).Header.String(); got != "10.244.0.2:8080 > 10.244.0.9:40000" {
		t.Errorf("the client sees %s", got)
	}
}

func TestFlow(t *testing.T) {
	t.Parallel()
	packet := connect(application, "192.0.2.1:80")
	outcome := traced(t, pod(build(t, capture)), packet)
	source := netip.MustParseAddrPort("10.244.0.2:32768")
	proxied := netip.MustParseAddrPort("127.0.0.1:15001")
	want := &trace.Flow{
		Protocol:   interception.ProtocolTCP,
		Original:   trace.Tuple{Src: source, Dst: packet.Dst},
		Reply:      trace.Tuple{Src: proxied, Dst: source},
		DstSettled: true, SrcSettled: true,
		Opener: &trace.End{Local: source, Remote: packet.Dst, Socket: ofApplication()},
		Taker:  &trace.End{Local: proxied, Remote: source, Listener: outcome.Listener},
	}
	if diff := cmp.Diff(want, outcome.Flow, cmpopts.EquateComparable(source, source.Addr())); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Only a packet that came through leaves a flow, and a trace does not modify the given flow.
func TestFlowThatStays(t *testing.T) {
	t.Parallel()
	drops := func(hook interception.Hook) trace.World {
		return pod(build(t, func(b *interception.Builder) {
			chain := b.Filter("chain")
			chain.Entry(hook, interception.Match{}, "why")
			chain.Do("drop", interception.Match{}, interception.Drop{}, "why")
		}))
	}
	local := connect(application, "127.0.0.1:8080")
	for name, c := range map[string]struct {
		world  trace.World
		packet trace.Packet
		stays  bool
	}{
		"sent":                      {pod(), connect(application, "192.0.2.1:80"), true},
		"refused":                   {pod(), connect(application, "127.0.0.1:9999"), true},
		"dropped in output":         {drops(interception.Output), local, false},
		"dropped in input, by eth0": {drops(interception.Input), arriving("10.244.0.9:40000", "10.244.0.2:8080"), false},
		"dropped in input, by lo":   {drops(interception.Input), local, true},
		"not local":                 {pod(), arriving("10.244.0.9:40000", "10.50.0.1:80"), false},
	} {
		if got := traced(t, c.world, c.packet).Flow; (got != nil) != c.stays {
			t.Errorf("%s: the flow is %v", name, got)
		}
	}
	first := traced(t, pod(), local)
	before := *first.Flow
	answer := traced(t, drops(interception.Output), first.Answer(ofApplication()))
	if *first.Flow != before || answer.Flow == nil || !answer.Flow.Answered {
		t.Errorf("%+v became %+v, and the answer's is %+v", before, *first.Flow, answer.Flow)
	}
	untracked := pod(build(t, func(b *interception.Builder) {
		entered(b.Raw("raw")).Do("notrack", interception.Match{}, interception.NoTrack{}, "why")
	}))
	if got := traced(t, untracked, first.Answer(ofApplication())).Flow; got == nil || *got != before {
		t.Errorf("a packet that is not tracked made %+v of %+v", got, before)
	}
}

// A packet that matches neither direction of the flow belongs to another connection.
func TestForeignFlow(t *testing.T) {
	t.Parallel()
	world := pod(build(t, capture))
	flow := traced(t, world, connect(application, "192.0.2.1:80")).Flow
	other := connect(application, "192.0.2.1:443")
	other.Flow = flow
	expect(t, world, other, "delivered to outbound (proxy) at 127.0.0.1:15001, originally 192.0.2.1:443; out.capture: outbound to the proxy")
	datagrams := datagram(connect(application, "192.0.2.1:80"))
	datagrams.Flow = flow
	expect(t, world, datagrams, "sent by eth0 to 192.0.2.1:80; no rule decided")
}

// The sockets know what connection tracking does not see: an answer over UDP reaches the socket
// that sent the query, and no other.
func TestUntrackedExchanges(t *testing.T) {
	t.Parallel()
	untracked := func(hooks ...interception.Hook) trace.World {
		return pod(build(t, func(b *interception.Builder) {
			for _, hook := range hooks {
				chain := b.Raw(interception.ChainName("at-" + hook.String()))
				chain.Entry(hook, interception.Match{}, "why")
				chain.Do(interception.RuleID("notrack."+hook.String()), interception.Match{}, interception.NoTrack{}, "why")
			}
		}))
	}
	query := datagram(connect(application, "192.0.2.1:53"))
	for name, c := range map[string]struct {
		world   trace.World
		tracked bool
	}{
		"in no direction": {untracked(interception.Output, interception.Prerouting), false},
		"in one":          {untracked(interception.Output), true},
	} {
		flow := exchange(t, c.world, query, trace.Arrival{Link: "eth0"}, [3]string{
			"sent by eth0 to 192.0.2.1:53; no rule decided",
			"delivered to uid 1000 gid 1000 at 10.244.0.2:32768, from 192.0.2.1:53; no rule decided",
			"sent by eth0 to 192.0.2.1:53; no rule decided",
		})
		if flow.Untracked == c.tracked {
			t.Errorf("%s: the flow is %+v", name, flow)
		}
	}
	world := untracked(interception.Output, interception.Prerouting)
	stray := traced(t, world, query).Answer(trace.Arrival{Link: "eth0"})
	stray.Src = netip.MustParseAddrPort("192.0.2.9:53")
	expect(t, world, stray, "refused: nothing listens at 10.244.0.2:32768; no rule decided")
}

// A packet of a living connection is refused everywhere except at the socket that has the
// connection.
func TestLivingConnections(t *testing.T) {
	t.Parallel()
	captured := pod(build(t, capture))
	spared := pod(build(t, func(b *interception.Builder) {
		for hook, chain := range map[interception.Hook]*interception.ChainRef[interception.NATAction]{
			interception.Prerouting: b.NAT("spare-in"), interception.Output: b.NAT("spare-out"),
		} {
			chain.Entry(hook, interception.Match{}, "why")
			chain.Do("spare."+interception.RuleID(hook.String()), interception.Match{L4: interception.TCP().NotFlags(interception.Opening())}, interception.Accept{}, "spared")
		}
		capture(b)
	}))
	inbound := alive(arriving("10.244.0.9:40000", "10.244.0.2:8080"))
	answering := alive(connect(application, "10.244.0.9:40000"))
	answering.Src = netip.MustParseAddrPort("10.244.0.2:8080")
	speaking := alive(connect(application, "192.0.2.1:80"))
	answered := alive(arriving("192.0.2.1:80", "10.244.0.2:40000"))
	for name, c := range map[string]struct {
		world  trace.World
		packet trace.Packet
		want   string
	}{
		"inbound, no plan":        {pod(), inbound, "delivered to application at 10.244.0.2:8080; no rule decided"},
		"inbound, captured":       {captured, inbound, "refused: nothing has its connection at 10.244.0.2:15006; in.capture: inbound to the proxy"},
		"inbound, spared":         {spared, inbound, "delivered to application at 10.244.0.2:8080; spare.prerouting: spared"},
		"pod answers, captured":   {captured, answering, "refused: nothing has its connection at 127.0.0.1:15001; out.capture: outbound to the proxy"},
		"pod answers, spared":     {spared, answering, "sent by eth0 to 10.244.0.9:40000; spare.output: spared"},
		"outbound, captured":      {captured, speaking, "refused: nothing has its connection at 127.0.0.1:15001; out.capture: outbound to the proxy"},
		"outbound, spared":        {spared, speaking, "sent by eth0 to 192.0.2.1:80; spare.output: spared"},
		"pod is answered":         {pod(), answered, "delivered to its connection at 10.244.0.2:40000, from 192.0.2.1:80; no rule decided"},
		"pod is answered, spared": {spared, answered, "delivered to its connection at 10.244.0.2:40000, from 192.0.2.1:80; spare.prerouting: spared"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, c.world, c.packet, c.want)
		})
	}
}

// alive returns the packet in the middle of a connection that was not seen yet.
func alive(packet trace.Packet) trace.Packet {
	packet.Flags = interception.FlagACK
	return packet
}

// Connection tracking determines from the flags what can begin a connection, be a part of one, or
// neither.
func TestState(t *testing.T) {
	t.Parallel()
	const fin, syn, rst, psh, ack, urg = interception.FlagFIN, interception.FlagSYN, interception.FlagRST,
		interception.FlagPSH, interception.FlagACK, interception.FlagURG
	flow := traced(t, pod(), connect(application, "192.0.2.1:80")).Flow
	midstream := *traced(t, pod(), alive(connect(application, "192.0.2.1:80"))).Flow
	answered := *flow
	answered.Answered = true
	for _, c := range []struct {
		flags interception.TCPFlag
		flow  *trace.Flow
		want  interception.ConnState
	}{
		{0, nil, interception.StateNew},
		{syn, nil, interception.StateNew},
		{syn | urg, nil, interception.StateNew},
		{ack, nil, interception.StateNew},
		{ack | psh, nil, interception.StateNew},
		{ack | urg, nil, interception.StateNew},
		{syn | ack, nil, interception.StateInvalid},
		{rst, nil, interception.StateInvalid},
		{rst | ack, nil, interception.StateInvalid},
		{fin | ack, nil, interception.StateInvalid},
		{fin, nil, interception.StateInvalid},
		{syn | fin, nil, interception.StateInvalid},
		{psh, nil, interception.StateInvalid},
		{syn, flow, interception.StateNew},
		{rst, flow, interception.StateNew},
		{ack, flow, interception.StateInvalid},
		{fin | ack, flow, interception.StateInvalid},
		{ack, &midstream, interception.StateNew},
		{ack, &answered, interception.StateEstablished},
		{fin | ack, &answered, interception.StateEstablished},
		{rst, &answered, interception.StateEstablished},
		{fin, &answered, interception.StateInvalid},
	} {
		packet := connect(application, "192.0.2.1:80")
		packet.Flags, packet.Flow = c.flags, c.flow
		if got := stateOf(t, packet); got != c.want {
			t.Errorf("%s with flow %v: got %s, want %s", packet, c.flow != nil, got, c.want)
		}
	}
	for _, c := range []struct {
		packet trace.Packet
		want   interception.ConnState
	}{
		{datagram(connect(application, "192.0.2.1:53")), interception.StateNew},
		{traced(t, pod(), datagram(connect(application, "127.0.0.1:53"))).Answer(ofApplication()), interception.StateEstablished},
	} {
		if got := stateOf(t, c.packet); got != c.want {
			t.Errorf("%s: got %s, want %s", c.packet, got, c.want)
		}
	}
}

// stateOf returns the state that rules see in Output.
func stateOf(t *testing.T, packet trace.Packet) interception.ConnState {
	t.Helper()
	var met interception.ConnState
	for state := interception.StateNew; state <= interception.StateUntracked; state <<= 1 {
		for _, c := range []struct {
			condition interception.Condition[interception.ConnState]
			drops     bool
		}{{interception.Is(state), true}, {interception.Not(state), false}} {
			outcome := traced(t, pod(build(t, func(b *interception.Builder) {
				entered(b.Mangle("chain")).Do("drop", interception.Match{State: c.condition}, interception.Drop{}, "why")
			})), packet)
			if (outcome.Verdict == trace.Dropped) == c.drops {
				met |= state
			}
		}
	}
	return met
}
