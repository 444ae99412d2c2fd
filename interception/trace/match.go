// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// matches reports whether the packet, as it is at this point of its way, meets every condition of m.
func (w *walk) matches(plan *interception.Plan, m interception.Match) bool {
	src, dst := w.header.Src, w.header.Dst
	return m.Family.Covers(dst.Addr()) &&
		meets(m.In, w.in, w.in != "") &&
		meets(m.Out, w.out, w.out != "") &&
		meetsPrefixes(m.Src, src.Addr()) &&
		meetsPrefixes(m.Dst, dst.Addr()) &&
		meetsSet(plan, m.SrcSet, src.Addr()) &&
		meetsSet(plan, m.DstSet, dst.Addr()) &&
		w.meetsL4(m.L4) &&
		meetsOwner(m, w.owner)
}

// meets reports whether the value of a field meets a condition. A field that is not known meets none.
func meets[V any, S interface {
	interception.Operand
	Contains(value V) bool
}](c interception.Condition[S], value V, known bool,
) bool {
	return !c.Present() || known && c.Set().Contains(value) != c.Negated()
}

func meetsOwner(m interception.Match, owner *Socket) bool {
	if owner == nil {
		return !m.UID.Present() && !m.GID.Present()
	}
	return meets(m.UID, owner.UID, true) && meets(m.GID, owner.GID, true)
}

// meetsPrefixes is meets for an address: one of the other family has no place in the condition, negated or not.
func meetsPrefixes(c interception.Condition[interception.PrefixSet], addr netip.Addr) bool {
	return meets(c, addr, c.Set().Family().Covers(addr))
}

// meetsSet is meetsPrefixes for a set of the plan.
func meetsSet(plan *interception.Plan, c interception.Condition[interception.SetRef], addr netip.Addr) bool {
	if !c.Present() {
		return true
	}
	set, _ := plan.Set(c.Set().Name) // a valid plan has it
	return set.Family.Covers(addr) && set.Members.Contains(addr) != c.Negated()
}

func (w *walk) meetsL4(l interception.L4) bool {
	if l.Protocol() != interception.AnyProtocol && l.Protocol() != w.protocol {
		return false
	}
	return meets(l.SrcPort(), interception.Port(w.header.Src.Port()), true) &&
		meets(l.DstPort(), interception.Port(w.header.Dst.Port()), true)
}
