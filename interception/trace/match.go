// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// answer is the result of a condition.
type answer uint8

const (
	no     answer = iota
	unsure        // it depends on a live set whose members the world does not list
	yes
)

// matches reports whether the packet, at this point of its way, meets every condition of m.
func (w *walk) matches(plan *interception.Plan, m interception.Match) answer {
	src, dst := w.header.Src, w.header.Dst
	rest := m.Family.Covers(dst.Addr()) &&
		meets(m.In, w.in, w.in != "") &&
		meets(m.Out, w.out, w.out != "") &&
		meetsPrefixes(m.Src, src.Addr()) &&
		meetsPrefixes(m.Dst, dst.Addr()) &&
		w.meetsL4(m.L4) &&
		meetsOwner(m, w.owner) &&
		w.meetsTracking(m)
	if !rest {
		return no
	}
	return min(w.meetsSet(plan, m.SrcSet, src.Addr()), w.meetsSet(plan, m.DstSet, dst.Addr()))
}

// meets reports whether the value of a field meets a condition. An unknown field meets no
// condition.
func meets[V any, S interface {
	interception.Operand
	Contains(value V) bool
}](c interception.Condition[S], value V, known bool,
) bool {
	return !c.Present() || known && c.Set().Contains(value) != c.Negated()
}

// meetsTracking is about marks, state and direction. A packet without a flow has no direction and
// no connmark, not even 0.
func (w *walk) meetsTracking(m interception.Match) bool {
	return meetsBits(m.Mark, w.header.Mark) &&
		(!m.ConnMark.Present() || w.flow != nil && meetsBits(m.ConnMark, w.flow.Mark)) &&
		(!m.State.Present() || (m.State.Set()&w.state() != 0) != m.State.Negated()) &&
		(m.Direction == interception.AnyDirection || m.Direction == w.direction())
}

// meetsBits is meets for marks and flags, which are compared bit by bit.
func meetsBits[V any, S interface {
	interception.Operand
	Matches(value V) bool
}](c interception.Condition[S], value V,
) bool {
	return !c.Present() || c.Set().Matches(value) != c.Negated()
}

func meetsOwner(m interception.Match, owner *Socket) bool {
	if owner == nil {
		return !m.UID.Present() && !m.GID.Present()
	}
	return meets(m.UID, owner.UID, true) && meets(m.GID, owner.GID, true)
}

// meetsPrefixes is meets for an address. An address of the other family meets no condition, negated
// or not.
func meetsPrefixes(c interception.Condition[interception.PrefixSet], addr netip.Addr) bool {
	return meets(c, addr, c.Set().Family().Covers(addr))
}

// meetsSet is meetsPrefixes for a set of the plan.
func (w *walk) meetsSet(plan *interception.Plan, c interception.Condition[interception.SetRef], addr netip.Addr) answer {
	if !c.Present() {
		return yes
	}
	set, _ := plan.Set(c.Set().Name) // a valid plan has it
	members, known := set.Members, !set.Live
	for _, given := range w.network.LiveSets {
		if set.Live && given.Owner == plan.Owner && given.Name == set.Name {
			members, known = given.Members, true
		}
	}
	switch {
	case !set.Family.Covers(addr):
		return no
	case !known:
		return unsure
	case members.Contains(addr) != c.Negated():
		return yes
	default:
		return no
	}
}

func (w *walk) meetsL4(l interception.L4) bool {
	if l.Protocol() != interception.AnyProtocol && l.Protocol() != w.protocol {
		return false
	}
	return meets(l.SrcPort(), interception.Port(w.header.Src.Port()), true) &&
		meets(l.DstPort(), interception.Port(w.header.Dst.Port()), true) &&
		meetsBits(l.TCPFlags(), w.flags)
}
