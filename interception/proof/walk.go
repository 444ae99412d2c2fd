// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// walk starts all packets of the domain, and returns the threads in which they end.
func (e *engine) walk(domain ref) []thread {
	begin := thread{state{
		src: own(ownSrc), dst: own(ownDst), sent: own(ownSrc), taker: nobody, mark: mark{own: ^interception.Mark(0)},
	}, domain}
	if e.doubt != nil {
		e.stop(begin, ending{verdict: trace.Unknown}, e.doubt)
		return e.ended.list
	}
	arriving, leaving := e.split(begin, e.variable(e.arrival))
	e.leave(leaving)
	arriving.mark = mark{}
	for i, l := range e.net.Links {
		if l.Name != loopback {
			e.arrive(l.Name, threads{list: []thread{{arriving.state, e.and(arriving.where, e.equals(e.link, uint32(i)))}}})
		}
	}
	return e.ended.list
}

// leave walks from sockets to the outgoing links, and on if that is lo.
func (e *engine) leave(t thread) {
	var out threads
	if e.net.asksSource() {
		unbound, bound := e.split(t, e.variable(e.unbound))
		e.takeOff(&out, unbound, true)
		t = bound
	}
	e.takeOff(&out, t, false)
	var sent threads
	for _, on := range e.pass(interception.Output, out).list {
		on.out, on.why.changed = on.way.link, 0
		e.add(&sent, on)
	}
	var back threads
	for _, on := range e.pass(interception.Postrouting, sent).list {
		on.flow.confirmed = on.flow.kind != noFlow
		if on.out == loopback {
			e.add(&back, on)
			continue
		}
		e.send(on)
	}
	e.arrive(loopback, back)
}

// takeOff routes packets from sockets. If unbound, policy rules see no source.
func (e *engine) takeOff(out *threads, t thread, unbound bool) {
	s := t.selectors(loopback)
	s.unbound = unbound
	for _, w := range e.ways(s) {
		on, rest := e.split(t, w.where)
		on.way, t = w.value, rest
		e.sourced(out, on)
	}
	e.unrouted(t, s)
}

// again routes IPv4 packets whose source was chosen once more, from that source, as package trace
// does.
func (e *engine) again(t thread) []thread {
	if !e.net.asksSource() {
		return []thread{t}
	}
	four, six := e.split(t, e.ofFamily(interception.IPv4))
	routed, s := []thread{six}, four.selectors(loopback)
	for _, w := range e.ways(s) {
		on, rest := e.split(four, w.where)
		on.way, four = w.value, rest
		routed = append(routed, on)
	}
	e.unrouted(four, s)
	return routed
}

// sourced gives packets from sockets their sources, and lets rules see the sockets and links.
func (e *engine) sourced(out *threads, t thread) {
	unbound, bound := e.split(t, e.variable(e.unbound))
	starts := []thread{bound}
	for _, c := range e.sources(t.way) {
		on, rest := e.split(unbound, c.where)
		on.src.address, unbound = c.value, rest
		on.sent = on.src
		starts = append(starts, e.again(on)...)
	}
	e.stop(unbound, ending{verdict: trace.Unroutable, cause: trace.NoRoute}, nil)
	for _, on := range starts {
		martian, on := e.split(on, e.martianOut(on))
		e.stop(martian, ending{verdict: trace.Unroutable, cause: trace.Martian}, nil)
		on.owner, on.out = hasOwner, on.way.link
		e.add(out, on)
	}
}

// arrive walks from a link to sockets.
func (e *engine) arrive(link linkName, ts threads) {
	var in threads
	for _, t := range ts.list {
		t.in, t.out, t.owner, t.way = link, "", noOwner, way{}
		if link != loopback {
			martian, rest := e.split(t, e.martianAtLink(t))
			e.stop(martian, ending{verdict: trace.Unroutable, cause: trace.Martian}, nil)
			t = rest
		}
		e.add(&in, t)
	}
	var local threads
	for _, t := range e.pass(interception.Prerouting, in).list {
		if link != loopback {
			t = e.localOnly(t)
		}
		e.add(&local, t)
	}
	for _, t := range e.pass(interception.Input, local).list {
		t.flow.confirmed = t.flow.kind != noFlow
		e.deliver(t)
	}
}

// localOnly ends or forwards packets that came by a link and are not local, and ends those with
// impossible sources.
func (e *engine) localOnly(t thread) thread {
	martians, invalid := e.badSources(t)
	martian, rest := e.split(t, martians)
	e.stop(martian, ending{verdict: trace.Unroutable, cause: trace.Martian}, nil)
	filtered, rest := e.split(rest, invalid)
	e.stop(filtered, ending{verdict: trace.Unroutable, cause: trace.Filtered}, nil)
	local := never
	for _, w := range e.ways(t.selectors(t.in)) {
		if w.value.link == loopback {
			local = e.or(local, w.where)
		}
	}
	here, other := e.split(rest, local)
	forwarded := never
	for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
		if e.net.Forwarding(family) {
			forwarded = e.or(forwarded, e.ofFamily(family))
		}
	}
	onwards, other := e.split(other, forwarded)
	e.forward(onwards)
	e.stop(other, ending{verdict: trace.Unroutable, cause: trace.NotLocal}, nil)
	return here
}

// forward walks from Prerouting to the links by which packets that are not local leave.
func (e *engine) forward(t thread) {
	var on threads
	s := t.selectors(t.in)
	for _, w := range e.ways(s) {
		leaving, rest := e.split(t, w.where)
		leaving.way, leaving.out, t = w.value, w.value.link, rest
		e.add(&on, leaving)
	}
	e.unrouted(t, s)
	for _, hook := range []interception.Hook{interception.Forward, interception.Postrouting} {
		on = e.pass(hook, on)
	}
	for _, leaving := range on.list {
		leaving.flow.confirmed = leaving.flow.kind != noFlow
		e.send(leaving)
	}
}

// track is connection tracking, which follows raw.
func (e *engine) track(ts threads) threads {
	var tracked threads
	for _, t := range ts.list {
		zone := t.flow.zone
		t.flow.zoned = false
		if t.flow.kind != noFlow || t.flow.untracked {
			if t.flow.kind == noFlow {
				t.flow.zone = interception.SetZone{}
			}
			e.add(&tracked, t)
			continue
		}
		t.flow = flow{}
		plausible, refused := e.split(t, e.plausible())
		e.add(&tracked, refused)
		there, other := e.split(plausible, e.and(e.variable(e.known), e.not(e.variable(e.unseen)), e.zoned(zone)))
		found, invalid := e.split(there, e.recognised())
		found.flow = flow{
			kind: knownFlow, mark: mark{flow: ^interception.Mark(0)}, dstSettled: true, srcSettled: true, confirmed: true,
		}
		begun, none := e.split(other, e.begins())
		begun.flow = flow{kind: newFlow, zone: zone}
		related, begun := e.split(begun, e.variable(e.related))
		related.flow.mark = found.flow.mark // it has the mark of the flow that it is related to
		e.add(&tracked, invalid, found, begun, related, none)
	}
	return tracked
}

// zoned returns the packets for which connection tracking looks in the zone of their flow.
func (e *engine) zoned(zone interception.SetZone) ref {
	in := func(d interception.Direction) ref { return e.equals(e.zone, uint32(zone.For(d))) }
	return e.ite(e.variable(e.reply), in(interception.DirectionReply), in(interception.DirectionOriginal))
}

// recognised returns the packets that fit into their flow: before an answer, the opener of a
// connection can only repeat the opening or reset it.
func (e *engine) recognised() ref {
	waits := e.without(e.protocol(interception.ProtocolTCP), e.or(e.variable(e.answered), e.variable(e.midstream)))
	repeats := e.or(e.opens(), e.flagged(func(f interception.TCPFlag) bool { return f&interception.FlagRST != 0 }))
	return e.or(e.variable(e.reply), e.or(e.not(waits), repeats))
}

// plausible returns the packets whose flags connection tracking accepts for TCP.
func (e *engine) plausible() ref {
	const fin, syn, rst, ack, urg = interception.FlagFIN, interception.FlagSYN, interception.FlagRST, interception.FlagACK, interception.FlagURG
	combinations := []interception.TCPFlag{syn, syn | urg, syn | ack, rst, rst | ack, fin | ack, fin | ack | urg, ack, ack | urg}
	return e.or(e.variable(e.udp), e.flagged(func(f interception.TCPFlag) bool {
		return slices.Contains(combinations, f&^interception.FlagPSH)
	}))
}

// begins returns the packets without a flow that can be the first of one.
func (e *engine) begins() ref {
	const answer = interception.FlagSYN | interception.FlagACK
	return e.or(e.variable(e.udp), e.flagged(func(f interception.TCPFlag) bool {
		return f&(interception.FlagFIN|interception.FlagRST) == 0 && f&answer != answer
	}))
}
