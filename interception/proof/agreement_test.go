// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"flag"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

var plans = flag.Uint64("plans", 10, "how many pairs of random plans are compared with traces")

// randomValues returns a packet as the engine sees it, near the values in rules.
func randomValues(c sample.Choices, q question, links int) values {
	v := values{}
	set := func(n number, value uint32) {
		for i := range n.bits {
			v[n.level(i)] = value>>(n.bits-1-i)&1 == 1
		}
	}
	packet := sample.Packet(c)
	from := []netip.Addr{packet.Dst.Addr()}
	for packet.Dst.Addr().Is4() != from[0].Is4() || len(from) < 4 {
		packet = sample.Packet(c)
		if packet.Dst.Addr().Is4() == from[0].Is4() {
			from = append(from, packet.Dst.Addr())
		}
	}
	v[q.six] = from[0].Is6()
	for i := range 4 {
		for bit := range from[i].BitLen() {
			v[q.addrs[i].level(bit)] = bitOf(from[i], bit)
		}
		set(q.ports[i], uint32(sample.Pick(c, 53, 80, 443, 8080, 15001, 15006, 15008, 15053, 40000)))
	}
	set(q.flags, uint32(sample.Pick(c, 2, 2, 2, 2, 16, 17, 18, 4, c(64))))
	v[q.udp] = c(3) == 0
	if v[q.udp] {
		set(q.flags, 0)
	}
	v[q.arrival], v[q.transparent] = c(3) == 0, c(4) == 0
	v[q.unbound] = !v[q.arrival] && c(2) == 0
	set(q.link, uint32(1+c(links-1)))
	set(q.uid, uint32(sample.Pick(c, 0, 1000, 1337)))
	set(q.gid, uint32(sample.Pick(c, 0, 1000, 1337)))
	set(q.marks[ofPacket], uint32(sample.Pick(c, 0, 0, 1, 2, 0x539, 0x53a)))
	set(q.marks[ofFlow], uint32(sample.Pick(c, 0, 0, 1, 2, 0x539)))
	if v[q.known] = c(3) == 0; v[q.known] {
		v[q.unbound] = false
		set(q.zone, uint32(sample.Pick(c, 0, 0, 1, 2)))
		for _, variable := range []int32{q.reply, q.answered, q.midstream, q.socket, q.boundSrc, q.boundDst} {
			v[variable] = c(2) == 0
		}
		v[q.socketTransparent] = v[q.socket] && c(2) == 0
		if v[q.unseen] = c(4) == 0; v[q.unseen] {
			v[q.answered], v[q.midstream], v[q.boundSrc], v[q.boundDst] = false, false, false, false
		}
	}
	return v
}

// expectAgreement fails the test unless the packet ends in the engine as in the trace.
func expectAgreement(t *testing.T, e *engine, world trace.World, v values) trace.Outcome {
	t.Helper()
	packet := e.packet(v)
	outcome, err := trace.Trace(world, packet)
	if err != nil {
		t.Fatalf("the packet is in the domain: %v", err)
	}
	set := func(level int32) bool { return v[level] }
	var ends []state
	for _, end := range e.ended.list {
		if e.holds(end.where, set) {
			ends = append(ends, end.state)
		}
	}
	if len(ends) != 1 {
		t.Fatalf("%d threads have the packet\n%s", len(ends), outcome.Report())
	}
	if got := outcomeOf(e, v, packet, ends[0], outcome); !Same(got, outcome) {
		t.Fatalf("the engine says %v %v\n%+v\n%s\nflows %+v\n%+v\ngiven %+v", got.Verdict, got.Header, ends[0], outcome.Report(), got.Flow, outcome.Flow, packet.Flow)
	}
	return outcome
}

// outcomeOf returns the outcome of a thread; fields that threads do not keep come from the trace.
func outcomeOf(e *engine, v values, p trace.Packet, s state, traced trace.Outcome) trace.Outcome {
	at := func(x endpoint) netip.AddrPort {
		addr, port := x.address.given, x.port.given
		if x.address.from != given {
			addr = e.addr(v, x.address.from)
		}
		if x.port.from != given {
			port = uint16(v.number(e.ports[x.port.from]))
		}
		return netip.AddrPortFrom(addr, port)
	}
	markOf := func(m mark) interception.Mark {
		return m.value | m.own&interception.Mark(v.number(e.marks[ofPacket])) | m.flow&interception.Mark(v.number(e.marks[ofFlow]))
	}
	o := trace.Outcome{Packet: p, Verdict: s.end.verdict, Cause: s.end.cause, Link: s.end.link, Flow: p.Flow}
	if s.end.verdict == trace.Delivered || s.end.verdict == trace.Sent || s.end.verdict == trace.Refused {
		o.Header = trace.Header{Src: at(s.src), Dst: at(s.dst), Mark: markOf(s.mark)}
	}
	switch {
	case s.taker >= 0:
		o.Listener = e.net.Listeners[s.taker]
	case s.taker == connection:
		o.Listener, o.Socket = traced.Listener, traced.Socket
	}
	switch s.flow.kind {
	case knownFlow:
		known := *p.Flow
		known.Mark, known.Answered = markOf(s.flow.mark), known.Answered || v[e.reply]
		o.Flow = &known
	case newFlow:
		o.Flow = &trace.Flow{
			Protocol: p.Protocol, Zone: s.flow.zone.Zone, ZoneDirection: s.flow.zone.Direction, Original: trace.Tuple{Src: traced.Packet.Src, Dst: p.Dst},
			Reply: trace.Tuple{Src: at(s.dst), Dst: at(s.src)}, Mark: markOf(s.flow.mark), DstSettled: true, SrcSettled: true,
			Midstream: !v[e.udp] && !interception.Opening().Matches(interception.TCPFlag(v.number(e.flags))),
		}
	case noFlow:
	}
	return o
}

func TestAgreesWithTrace(t *testing.T) {
	t.Parallel()
	verdicts := map[trace.Verdict]int{}
	asked := 0
	for seed := range *plans {
		choose := sample.Seeded(seed)
		kinds := interception.TableKinds()
		world := sample.World(sample.Plan(choose, "test-plan", kinds...), sample.Plan(choose, "other-plan", kinds...))
		world.Namespaces[0].Forwards = choose(2) == 0
		world.Namespaces[0].Sysctls = sysctls(choose)
		e := newEngine(newQuestion(defaultMaxNodes), world.Namespaces[0], &members{known: world.Namespaces[0].LiveSets})
		domain := e.domain()
		e.walk(domain)
		if e.err != nil {
			t.Fatal(e.err)
		}
		for range 40 {
			v := randomValues(choose, e.question, len(e.net.Links))
			if !e.holds(domain, func(level int32) bool { return v[level] }) || e.coincides(v) {
				continue
			}
			asked++
			verdicts[expectAgreement(t, e, world, v).Verdict]++
		}
	}
	for verdict := trace.Delivered; verdict <= trace.Rejected; verdict++ {
		if verdicts[verdict] < asked/100 {
			t.Errorf("only %d of %d random packets are %s: they test too little", verdicts[verdict], asked, verdict)
		}
	}
}

// sysctls returns random settings about sources and forwarding.
func sysctls(choose sample.Choices) map[string]int {
	all := map[string]int{}
	for _, key := range []string{
		"ipv4/conf/all/rp_filter", "ipv4/conf/eth0/rp_filter", "ipv4/conf/all/src_valid_mark", "ipv4/conf/eth0/accept_local",
		"ipv4/ip_forward", "ipv6/conf/all/forwarding",
	} {
		switch value := choose(6); {
		case value < 2:
			all[key] = value
		case value == 2 && key[len(key)-9:] == "rp_filter":
			all[key] = value
		}
	}
	return all
}

// coincides reports whether addresses of a flow coincide that the model takes for different ones:
// the packet's own two, or a binding and the address that it replaces.
func (q question) coincides(v values) bool {
	same := func(a, b uint8) bool { return q.addrPort(v, a) == q.addrPort(v, b) }
	return v[q.known] && (same(ownSrc, ownDst) || v[q.boundDst] && same(ownDst, flowDst) || v[q.boundSrc] && same(ownSrc, flowSrc))
}
