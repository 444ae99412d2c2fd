// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// domain returns all packets that can start in the namespace, as in trace.Trace. The package
// documentation defines their flows.
func (e *engine) domain() ref {
	var prefixes []netip.Prefix
	for _, p := range []string{"0.0.0.0/32", "224.0.0.0/4", "::/128", "ff00::/8", "::ffff:0:0/96"} {
		prefixes = append(prefixes, netip.MustParsePrefix(p))
	}
	strange := interception.Prefixes(prefixes...)
	dst, src := own(ownDst), own(ownSrc)
	zero := interception.Ports(0)
	flags := e.ite(e.variable(e.udp), e.equals(e.flags, 0), e.not(e.equals(e.flags, 0)))
	local := e.or(e.variable(e.transparent), e.within(src.address, e.net.local()))
	given := e.without(e.or(e.variable(e.arrival), local), e.within(src.address, strange))
	links := never
	for i, l := range e.net.Links {
		if l.Name != loopback && i < maxLinks {
			links = e.or(links, e.equals(e.link, uint32(i)))
		}
	}
	return e.and(
		flags,
		e.not(e.within(dst.address, strange)), e.not(e.within(dst.address, e.net.broadcasts())),
		e.not(e.portIn(dst.port, zero)), e.not(e.portIn(src.port, zero)),
		e.ite(e.variable(e.unbound), e.not(e.variable(e.arrival)), given),
		e.ite(e.variable(e.arrival), links, always),
		e.flows(),
	)
}

// flows returns the possible flows: packets of a flow name their source; without a flow, its
// variables are 0.
func (e *engine) flows() ref {
	none := always
	for _, v := range []int32{e.unseen, e.reply, e.answered, e.midstream, e.socket, e.socketTransparent, e.boundSrc, e.boundDst} {
		none = e.without(none, e.variable(v))
	}
	untracked := always
	for _, v := range []int32{e.answered, e.midstream, e.boundSrc, e.boundDst} {
		untracked = e.without(untracked, e.variable(v))
	}
	known := e.and(
		e.not(e.variable(e.unbound)),
		e.ite(e.variable(e.socketTransparent), e.variable(e.socket), always),
		e.ite(e.variable(e.unseen), untracked, always),
	)
	return e.and(e.ite(e.variable(e.known), known, none), e.not(e.variable(e.related)), e.not(e.variable(e.owned)))
}

// values has a value for every variable.
type values map[int32]bool

func (v values) number(n number) uint32 {
	value := uint32(0)
	for i := range n.bits {
		value <<= 1
		if v[n.level(i)] {
			value |= 1
		}
	}
	return value
}

func (q question) addr(v values, from uint8) netip.Addr {
	n := q.addrs[from]
	var bytes [16]byte
	for i := range 128 {
		if v[n.level(i)] {
			bytes[i/8] |= 1 << (7 - i%8)
		}
	}
	if !v[q.six] {
		return netip.AddrFrom4([4]byte(bytes[:4]))
	}
	return netip.AddrFrom16(bytes)
}

func (q question) addrPort(v values, from uint8) netip.AddrPort {
	return netip.AddrPortFrom(q.addr(v, from), uint16(v.number(q.ports[from])))
}

// packet returns the packet that the values describe.
func (e *engine) packet(v values) trace.Packet {
	p := trace.Packet{
		Protocol: interception.ProtocolTCP, Flags: interception.TCPFlag(v.number(e.flags)),
		Src: e.addrPort(v, ownSrc), Dst: e.addrPort(v, ownDst),
	}
	if p.Flags == interception.FlagSYN {
		p.Flags = 0 // 0 means SYN
	}
	if v[e.udp] {
		p.Protocol, p.Flags = interception.ProtocolUDP, 0
	}
	if v[e.unbound] {
		p.Src = netip.AddrPortFrom(netip.Addr{}, p.Src.Port())
	}
	if v[e.arrival] {
		p.From = trace.Arrival{Namespace: e.net.Name, Link: e.net.Links[v.number(e.link)].Name}
	} else {
		p.From = trace.Socket{
			Namespace: e.net.Name, UID: interception.UID(v.number(e.uid)), GID: interception.GID(v.number(e.gid)),
			Mark: interception.Mark(v.number(e.marks[ofPacket])), Transparent: v[e.transparent],
		}
	}
	if v[e.known] {
		p.Flow = e.flowOf(v, p)
	}
	return p
}

// flowOf returns the packet's flow.
func (e *engine) flowOf(v values, p trace.Packet) *trace.Flow {
	entered, left := trace.Tuple{Src: p.Src, Dst: p.Dst}, trace.Tuple{Src: p.Src, Dst: p.Dst}
	if v[e.boundDst] {
		left.Dst = e.addrPort(v, flowDst)
	}
	if v[e.boundSrc] {
		left.Src = e.addrPort(v, flowSrc)
	}
	f := &trace.Flow{
		Protocol: p.Protocol, Zone: uint16(v.number(e.zone)), Mark: interception.Mark(v.number(e.marks[ofFlow])),
		Original: entered, Reply: trace.Tuple{Src: left.Dst, Dst: left.Src},
		Midstream: v[e.midstream], Answered: v[e.answered], DstSettled: true, SrcSettled: true,
	}
	if v[e.unseen] {
		f = &trace.Flow{Protocol: p.Protocol, Untracked: true, Original: f.Original, Reply: f.Reply}
	}
	end := &trace.End{Local: left.Dst, Remote: left.Src}
	if v[e.reply] {
		f.Original, f.Reply = trace.Tuple{Src: left.Dst, Dst: left.Src}, entered
	}
	switch {
	case v[e.socket] && v[e.reply]:
		end.Socket.Transparent = v[e.socketTransparent]
		f.Opener = end
	case v[e.socket]:
		end.Listener = trace.Listener{Name: "connection", Protocol: p.Protocol, Transparent: v[e.socketTransparent]}
		f.Taker = end
	}
	return f
}

// liveSets returns the members of live sets that the values describe, in addition to those of the
// world.
func (e *engine) liveSets(v values, plans []*interception.Plan) []trace.LiveSet {
	all := append([]trace.LiveSet(nil), e.members.known...)
	for _, plan := range plans {
		for set := range plan.Sets() {
			if _, known := e.members.given(plan.Owner, set.Name); !set.Live || known {
				continue
			}
			var members []netip.Prefix
			for i, m := range e.members.asked {
				if m.owner == plan.Owner && m.set == set.Name && v[e.live.level(i)] {
					addr := m.of.given
					if m.of.from != given {
						addr = e.addr(v, m.of.from)
					}
					if set.Family.Covers(addr) {
						members = append(members, netip.PrefixFrom(addr, addr.BitLen()))
					}
				}
			}
			all = append(all, trace.LiveSet{Owner: plan.Owner, Name: set.Name, Members: interception.Prefixes(members...)})
		}
	}
	return all
}
