// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// space is the layout of the variables, which describe a packet before it starts. Variables that
// split few packets come first. The addresses, for which there are large sets, come last, one after
// the other, so that the size of a thousand prefixes of one address and five hundred ports stays
// their sum, whatever is tested before.
type space struct {
	arrival, six, udp, unbound, transparent int32
	// owned and related are for hooks in isolation: the packet has a socket; connection tracking
	// finds it related to another connection.
	owned, related int32
	// About the flow that the packet has already, see packet.go.
	known, unseen, reply, answered, midstream, socket, socketTransparent, boundSrc, boundDst int32

	flags, link, in, out, live, zone, uid, gid number
	marks                                      [2]number
	ports, addrs                               [4]number
}

// The marks, as sources of a mark's bits.
const (
	ofPacket = iota
	ofFlow
)

// The addresses and ports, as sources of a packet's: its own, and those that its flow is bound to.
const (
	ownDst = iota
	ownSrc
	flowDst
	flowSrc
	given // an address from a rule, not the packet's
)

// The greatest numbers for which few bits suffice.
const (
	maxLinks = 1 << 8
	maxLive  = 1 << 8
)

func newSpace() *space {
	var s space
	next := int32(0)
	for _, variable := range []*int32{
		&s.arrival, &s.six, &s.udp, &s.unbound, &s.transparent, &s.owned, &s.related, &s.known, &s.unseen, &s.reply, &s.answered, &s.midstream,
		&s.socket, &s.socketTransparent, &s.boundSrc, &s.boundDst,
	} {
		*variable = next
		next++
	}
	add := func(n *number, bits int) {
		*n = number{next, bits, 1}
		next += int32(bits)
	}
	add(&s.flags, 6)
	for _, n := range []*number{&s.link, &s.in, &s.out} {
		add(n, 8)
	}
	add(&s.live, maxLive) // each bit a variable of its own
	add(&s.zone, 16)
	add(&s.uid, 32)
	add(&s.gid, 32)
	for i := range s.marks { // bit by bit, because the marks are compared
		s.marks[i] = number{next + int32(i), 32, int32(len(s.marks))}
	}
	next += int32(32 * len(s.marks))
	for i := range s.ports {
		add(&s.ports[i], 16)
	}
	for i := range s.addrs {
		add(&s.addrs[i], 128)
	}
	return &s
}

// address is an address of the packet, or a given one; it is comparable.
type address struct {
	from  uint8 // ownDst, ... or given
	given netip.Addr
}

// port is likewise.
type port struct {
	from  uint8
	given uint16
}

// endpoint is an address with its port.
type endpoint struct {
	address address
	port    port
}

func own(from uint8) endpoint { return endpoint{address{from: from}, port{from: from}} }

// mark is a mark whose bits come from the packet's mark, the flow's, or are given: own and flow are
// masks without a common bit, and value is 0 in both.
type mark struct {
	own, flow, value interception.Mark
}

// write replaces the bits of a mask by those of another mark.
func (m mark) write(from mark, mask interception.Mark) mark {
	return mark{
		own: m.own&^mask | from.own&mask, flow: m.flow&^mask | from.flow&mask, value: m.value&^mask | from.value&mask,
	}
}

// givenMark returns a mark with all bits given.
func givenMark(value interception.Mark) mark { return mark{value: value} }

// question is the part of an engine that builds sets of packets.
type question struct {
	*diagram
	*space
	prefixes map[prefixQuestion]ref
}

type prefixQuestion struct {
	n   number
	set string
}

func newQuestion(limit int) question {
	return question{newDiagram(limit), newSpace(), map[prefixQuestion]ref{}}
}

// ofFamily returns the packets of the family.
func (q question) ofFamily(f interception.Family) ref {
	switch f {
	case interception.IPv4:
		return q.not(q.variable(q.six))
	case interception.IPv6:
		return q.variable(q.six)
	case interception.BothFamilies:
	}
	return always
}

// within returns the packets of a family of the set whose address is in the set.
func (q question) within(a address, set interception.PrefixSet) ref {
	if a.from == given {
		if set.Contains(a.given) {
			return q.ofFamily(interception.FamilyOf(a.given))
		}
		return never
	}
	key := prefixQuestion{q.addrs[a.from], set.String()}
	if known, ok := q.prefixes[key]; ok {
		return known
	}
	four := q.prefixesBelow(key.n, 0, set.Of(interception.IPv4).Prefixes())
	six := q.prefixesBelow(key.n, 0, set.Of(interception.IPv6).Prefixes())
	q.prefixes[key] = q.ite(q.variable(q.six), six, four)
	return q.prefixes[key]
}

func (q question) inPrefix(a address, p netip.Prefix) ref {
	return q.within(a, interception.Prefixes(p))
}

// isAddress returns the packets of the address's family that have the address.
func (q question) isAddress(a address, addr netip.Addr) ref {
	return q.inPrefix(a, netip.PrefixFrom(addr, addr.BitLen()))
}

// portIn returns the packets whose port is in the set.
func (q question) portIn(p port, set interception.PortSet) ref {
	switch {
	case p.from != given:
		return inRanges(q.diagram, q.ports[p.from], set.Ranges())
	case set.Contains(interception.Port(p.given)):
		return always
	default:
		return never
	}
}

// marked returns the packets whose mark matches.
func (q question) marked(m mark, bits interception.MarkBits) ref {
	if (m.value^bits.Value)&bits.Mask&^(m.own|m.flow) != 0 {
		return never
	}
	return q.and(
		q.fixed(q.marks[ofPacket], uint32(bits.Value), uint32(bits.Mask&m.own)),
		q.fixed(q.marks[ofFlow], uint32(bits.Value), uint32(bits.Mask&m.flow)),
	)
}

// sameMark returns the packets for which both marks are the same.
func (q question) sameMark(a, b mark) ref {
	same := always
	for bit := interception.Mark(1) << 31; bit != 0; bit >>= 1 {
		same = q.and(same, q.iff(q.markBit(a, bit), q.markBit(b, bit)))
	}
	return same
}

// markBit returns the packets for which the bit of the mark is 1.
func (q question) markBit(m mark, bit interception.Mark) ref {
	switch {
	case m.own&bit != 0:
		return q.fixed(q.marks[ofPacket], uint32(bit), uint32(bit))
	case m.flow&bit != 0:
		return q.fixed(q.marks[ofFlow], uint32(bit), uint32(bit))
	case m.value&bit != 0:
		return always
	default:
		return never
	}
}

// sameEndpoint returns the packets for which both are the same. Two different endpoints of the
// packet are never the same: the domain excludes such packets.
func (q question) sameEndpoint(a, b endpoint) ref {
	return q.and(q.sameAddress(a.address, b.address), q.samePort(a.port, b.port))
}

func (q question) sameAddress(a, b address) ref {
	switch {
	case a == b:
		return always
	case a.from == given && b.from != given:
		return q.isAddress(b, a.given)
	case b.from == given && a.from != given:
		return q.isAddress(a, b.given)
	default:
		return never
	}
}

func (q question) samePort(a, b port) ref {
	switch {
	case a == b:
		return always
	case a.from == given && b.from != given:
		return q.equals(q.ports[b.from], uint32(a.given))
	case b.from == given && a.from != given:
		return q.equals(q.ports[a.from], uint32(b.given))
	default:
		return never
	}
}
