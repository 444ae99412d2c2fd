// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// same returns the packets of two threads, each in a world of its own, that have the same outcome.
func (q question) same(a, b state) ref {
	if a.end != b.end || a.taker != b.taker {
		return never
	}
	return q.and(q.sameFlow(a.flow, b.flow), q.sameEndpoint(a.src, b.src), q.sameEndpoint(a.dst, b.dst), q.sameMark(a.mark, b.mark))
}

func (q question) sameFlow(a, b flow) ref {
	if a.kind > b.kind {
		a, b = b, a
	}
	switch {
	case a.kind == b.kind && a.zone == b.zone:
		return q.sameMark(a.mark, b.mark)
	case a.kind == noFlow && b.kind == knownFlow: // a flow that was not looked up did not change
		unanswered := q.without(q.variable(q.reply), q.variable(q.answered))
		return q.without(q.sameMark(mark{flow: ^interception.Mark(0)}, b.mark), unanswered)
	default:
		return never
	}
}

// Same reports whether two packets end alike, as defined by [Equivalent].
func Same(a, b trace.Outcome) bool {
	if a.Verdict != b.Verdict || a.Cause != b.Cause || !sameFlows(a.Flow, b.Flow) {
		return false
	}
	switch a.Verdict {
	case trace.Sent:
		return a.Header == b.Header && a.Link == b.Link
	case trace.Delivered:
		return a.Header == b.Header && a.Listener == b.Listener && (a.Socket == nil) == (b.Socket == nil)
	case trace.Refused:
		return a.Header == b.Header
	case trace.Dropped, trace.Rejected, trace.Unroutable, trace.Unknown:
	}
	return true
}

// sameFlows compares what connection tracking keeps: nothing of an untracked flow. The sockets at
// the ends follow from it.
func sameFlows(a, b *trace.Flow) bool {
	if none := a == nil || a.Untracked; none || b == nil || b.Untracked {
		return none == (b == nil || b.Untracked)
	}
	x, y := *a, *b
	x.Opener, x.Taker, y.Opener, y.Taker = nil, nil, nil, nil
	return x == y
}

// pleasant narrows the packets to natural examples, where possible.
func (e *engine) pleasant(fs []ref) ref {
	dst, src := own(ownDst), own(ownSrc)
	prefix := func(s string) netip.Prefix { return netip.MustParsePrefix(s) }
	wishes := []ref{
		e.not(e.variable(e.known)), e.protocol(interception.ProtocolTCP), e.or(e.variable(e.udp), e.equals(e.flags, uint32(interception.FlagSYN))),
		e.ofFamily(interception.IPv4), e.not(e.variable(e.arrival)), e.not(e.variable(e.transparent)),
		e.or(e.variable(e.arrival), e.variable(e.unbound)),
		e.equals(e.marks[ofPacket], 0), e.equals(e.marks[ofFlow], 0), e.equals(e.zone, 0),
		e.not(e.variable(e.boundDst)), e.not(e.variable(e.boundSrc)), e.not(e.variable(e.socketTransparent)),
		e.equals(e.uid, 1000), e.equals(e.gid, 1000),
		e.or(e.variable(e.unbound), e.within(src.address, interception.Prefixes(prefix("192.0.2.0/24"), prefix("2001:db8::/112")))),
		e.portIn(src.port, interception.Ports(40000)),
		e.inPrefix(src.address, prefix("192.0.2.9/32")), e.inPrefix(src.address, prefix("2001:db8::9/128")),
		e.or(e.not(e.variable(e.arrival)), e.within(dst.address, e.net.addresses())),
		e.or(e.not(e.variable(e.arrival)), e.not(e.within(dst.address, interception.Prefixes(prefix("127.0.0.0/8"), prefix("::1/128"))))),
		e.or(e.inPrefix(dst.address, prefix("198.51.100.1/32")), e.inPrefix(dst.address, prefix("2001:db8::1/128"))),
		e.within(dst.address, interception.Prefixes(prefix("198.51.100.0/24"), prefix("2001:db8::/112"))),
		e.within(dst.address, e.net.local()),
		e.ite(e.variable(e.six), e.variable(e.addrs[ownDst].level(127)), e.variable(e.addrs[ownDst].level(31))),
		e.portIn(dst.port, interception.Ports(8080)), e.portIn(dst.port, interception.Ports(443)),
		e.portIn(dst.port, interception.PortRange(1, 1023)), e.portIn(dst.port, interception.PortRange(1024, 32767)),
		e.within(own(flowDst).address, interception.Prefixes(prefix("203.0.113.0/24"), prefix("2001:db8:1::/112"))),
		e.within(own(flowSrc).address, interception.Prefixes(prefix("203.0.113.0/24"), prefix("2001:db8:1::/112"))),
	}
	for _, wish := range wishes {
		if narrower := e.narrowed(fs, wish); len(narrower) > 0 {
			fs = narrower
		}
	}
	return fs[0]
}

// narrowed restricts the functions to a condition.
func (q question) narrowed(fs []ref, condition ref) []ref {
	var kept []ref
	for _, f := range fs {
		if f = q.and(f, condition); f != never {
			kept = append(kept, f)
		}
	}
	return kept
}
