// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// matches returns the packets of a thread that meet every condition of a rule.
func (e *engine) matches(r *rule, t thread) ref {
	m := r.Match
	return e.and(
		e.ofFamily(m.Family),
		e.linkIn(m.In, t.in, e.in), e.linkIn(m.Out, t.out, e.out),
		e.protocol(m.L4.Protocol()),
		e.meetsMarks(m, t),
		e.meetsOwner(m, t),
		e.meetsFlags(m.L4.TCPFlags()),
		e.meetsPort(r, "sport", m.L4.SrcPort(), t.src.port),
		e.meetsPort(r, "dport", m.L4.DstPort(), t.dst.port),
		e.meetsPrefixes(r, "src", m.Src, t.src.address),
		e.meetsPrefixes(r, "dst", m.Dst, t.dst.address),
		e.meetsSet(r, "src set", m.SrcSet, t.src.address),
		e.meetsSet(r, "dst set", m.DstSet, t.dst.address),
	)
}

// unless negates a condition if the rule negates it.
func (q question) unless(negated bool, f ref) ref {
	if negated {
		return q.not(f)
	}
	return f
}

func constant(holds bool) ref {
	if holds {
		return always
	}
	return never
}

// once caches a rule's condition on a part of the packet that few rules change.
func (r *rule) once(name string, from uint8, ask func() ref) ref {
	if from == given {
		return ask()
	}
	key := field{name, from}
	if _, known := r.asked[key]; !known {
		r.asked[key] = ask()
	}
	return r.asked[key]
}

func (e *engine) linkIn(c interception.Condition[interception.InterfaceSet], link linkName, n number) ref {
	switch {
	case !c.Present():
		return always
	case link == "":
		return never
	case link != anyLink:
		return constant(c.Set().Contains(link) != c.Negated())
	}
	among := never
	for i, name := range e.links {
		if c.Set().Contains(name) != c.Negated() {
			among = e.or(among, e.equals(n, uint32(i)))
		}
	}
	return among
}

func (e *engine) protocol(p interception.Protocol) ref {
	switch p {
	case interception.AnyProtocol:
		return always
	case interception.ProtocolTCP:
		return e.not(e.variable(e.udp))
	case interception.ProtocolUDP:
		return e.variable(e.udp)
	default:
		return never
	}
}

func (e *engine) meetsFlags(c interception.Condition[interception.TCPFlags]) ref {
	if !c.Present() {
		return always
	}
	return e.unless(c.Negated(), e.flagged(c.Set().Matches))
}

// flagged returns the packets with such TCP flags.
func (q question) flagged(so func(interception.TCPFlag) bool) ref {
	found := never
	for flags := range interception.TCPFlag(1 << q.flags.bits) {
		if so(flags) {
			found = q.or(found, q.equals(q.flags, uint32(flags)))
		}
	}
	return found
}

// opens returns the packets that open a connection or exchange.
func (q question) opens() ref {
	return q.or(q.variable(q.udp), q.flagged(interception.Opening().Matches))
}

func (e *engine) meetsPort(r *rule, name string, c interception.Condition[interception.PortSet], p port) ref {
	if !c.Present() {
		return always
	}
	return r.once(name, p.from, func() ref { return e.unless(c.Negated(), e.portIn(p, c.Set())) })
}

// meetsPrefixes is about an address: one of the other family meets no condition, negated or not.
func (e *engine) meetsPrefixes(r *rule, name string, c interception.Condition[interception.PrefixSet], a address) ref {
	if !c.Present() {
		return always
	}
	return r.once(name, a.from, func() ref {
		return e.and(e.ofFamily(c.Set().Family()), e.unless(c.Negated(), e.within(a, c.Set())))
	})
}

// meetsSet is meetsPrefixes for a set of the plan. Whether an address is in a live set is free.
func (e *engine) meetsSet(r *rule, name string, c interception.Condition[interception.SetRef], a address) ref {
	if !c.Present() {
		return always
	}
	set, _ := r.plan.Set(c.Set().Name) // a valid plan has it
	return r.once(name, a.from, func() ref {
		among := e.within(a, set.Members)
		if set.Live {
			among = e.liveMember(r.owner, set.Name, a)
		}
		return e.and(e.ofFamily(set.Family), e.unless(c.Negated(), among))
	})
}

// meetsOwner is about the packet's socket.
func (e *engine) meetsOwner(m interception.Match, t thread) ref {
	if !m.UID.Present() && !m.GID.Present() {
		return always
	}
	has := never
	switch t.owner {
	case hasOwner:
		has = always
	case mayHaveOwner:
		has = e.variable(e.owned)
	case noOwner:
	}
	if m.UID.Present() {
		has = e.and(has, e.unless(m.UID.Negated(), inRanges(e.diagram, e.uid, m.UID.Set().Ranges())))
	}
	if m.GID.Present() {
		has = e.and(has, e.unless(m.GID.Negated(), inRanges(e.diagram, e.gid, m.GID.Set().Ranges())))
	}
	return has
}

// meetsMarks is about marks, and about state and direction in connection tracking. A packet without
// a flow has no direction and no connmark, not even 0.
func (e *engine) meetsMarks(m interception.Match, t thread) ref {
	all := always
	if m.Mark.Present() {
		all = e.unless(m.Mark.Negated(), e.marked(t.mark, m.Mark.Set()))
	}
	if m.ConnMark.Present() {
		if t.flow.kind == noFlow {
			return never
		}
		all = e.and(all, e.unless(m.ConnMark.Negated(), e.marked(t.flow.mark, m.ConnMark.Set())))
	}
	if m.State.Present() {
		all = e.and(all, e.unless(m.State.Negated(), e.found(t, m.State.Set())))
	}
	return e.and(all, e.goes(t, m.Direction))
}

// goes returns the packets that go in a direction of their flow. The packet that begins a flow goes
// in the original direction.
func (e *engine) goes(t thread, direction interception.Direction) ref {
	switch {
	case direction == interception.AnyDirection:
		return always
	case t.flow.kind == knownFlow:
		return e.unless(direction == interception.DirectionOriginal, e.variable(e.reply))
	default:
		return constant(t.flow.kind == newFlow && direction == interception.DirectionOriginal)
	}
}

// found returns the packets in one of the connection tracking states.
func (e *engine) found(t thread, states interception.ConnState) ref {
	has := func(s interception.ConnState) ref { return constant(states&s != 0) }
	switch {
	case t.flow.untracked:
		return has(interception.StateUntracked)
	case t.flow.kind == noFlow:
		return has(interception.StateInvalid)
	case t.flow.kind == newFlow:
		return e.ite(e.variable(e.related), has(interception.StateRelated), has(interception.StateNew))
	default:
		established := e.or(e.variable(e.reply), e.variable(e.answered))
		return e.ite(established, has(interception.StateEstablished), has(interception.StateNew))
	}
}

// members records the conditions on live sets: each condition that an address is in a set has a
// variable of its own.
type members struct {
	known []trace.LiveSet
	asked []membership
}

type membership struct {
	owner interception.Owner
	set   interception.SetName
	of    address
}

// given returns the members of a live set, if the world lists them.
func (m *members) given(owner interception.Owner, set interception.SetName) (interception.PrefixSet, bool) {
	for _, l := range m.known {
		if l.Owner == owner && l.Name == set {
			return l.Members, true
		}
	}
	return interception.PrefixSet{}, false
}

// liveMember returns the packets whose address is in the live set: by the world's members, else by
// a variable.
func (e *engine) liveMember(owner interception.Owner, set interception.SetName, a address) ref {
	if known, ok := e.members.given(owner, set); ok {
		return e.within(a, known)
	}
	question := membership{owner, set, a}
	if i := slices.Index(e.members.asked, question); i >= 0 {
		return e.variable(e.live.level(i))
	}
	if len(e.members.asked) == maxLive {
		if e.err == nil {
			e.err = fmt.Errorf("%w: live sets are asked about more than %d addresses", ErrTooLarge, maxLive)
		}
		return never
	}
	e.members.asked = append(e.members.asked, question)
	return e.variable(e.live.level(len(e.members.asked) - 1))
}

// consistent returns the packets for which equal addresses are in the same live sets.
func (q question) consistent(m *members) ref {
	all := always
	for i, a := range m.asked {
		for j, b := range m.asked[:i] {
			if a.owner == b.owner && a.set == b.set {
				same := q.iff(q.variable(q.live.level(i)), q.variable(q.live.level(j)))
				all = q.and(all, q.ite(q.sameAddress(a.of, b.of), same, always))
			}
		}
	}
	return all
}
