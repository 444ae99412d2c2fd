// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"strings"
)

// Match selects packets for a rule: those that meet every condition. The zero Match selects all.
//
// A condition on an address restricts the rule to the address's family, even when it is negated:
// "not 127.0.0.1" does not match IPv6 packets.
type Match struct {
	// Family restricts the rule to packets of one family.
	Family Family
	// In and Out are the interfaces on which a packet arrived and through which it leaves. In is
	// known in the hooks Prerouting, Input and Forward, Out in Forward, Output and Postrouting.
	In, Out Condition[InterfaceSet]
	// Src and Dst are the packet's current addresses, as literal prefixes of one family.
	Src, Dst Condition[PrefixSet]
	// SrcSet and DstSet test the same addresses by reference to a [Set] of the plan.
	SrcSet, DstSet Condition[SetRef]
	// L4 is the transport protocol and its ports.
	L4 L4
	// UID and GID are the user and group of the socket that a locally generated packet comes from.
	// They are known in Output and Postrouting. A packet without a socket meets neither Is nor Not.
	UID Condition[UIDSet]
	GID Condition[GIDSet]
	// Mark is the packet's mark and ConnMark that of its connection. ConnMark is not known in raw,
	// which runs before connection tracking.
	Mark, ConnMark Condition[MarkBits]
	// State is the set of connection tracking states to match. It is not known in raw.
	State Condition[ConnState]
	// Direction restricts the rule to one direction of connections. It is not known in raw.
	Direction Direction
}

// families returns the families that parts of the match name, without BothFamilies.
func (m Match) families() []Family {
	var named []Family
	add := func(f Family) {
		if f != BothFamilies {
			named = append(named, f)
		}
	}
	add(m.Family)
	add(m.Src.Set().Family())
	add(m.Dst.Set().Family())
	add(m.SrcSet.Set().Family)
	add(m.DstSet.Set().Family)
	return named
}

// EffectiveFamily returns the one family that the match can apply to, whether from Family or from
// an address condition, or [BothFamilies]. It is meaningful for a match that [Build] accepted.
func (m Match) EffectiveFamily() Family {
	if named := m.families(); len(named) > 0 {
		return named[0]
	}
	return BothFamilies
}

// canonical returns the form that all matches of the same meaning share: it drops the family where
// an address implies it, and turns "this bit is not x" into "this bit is the other value".
func (m Match) canonical() Match {
	family := m.Family
	if m.Family = BothFamilies; m.EffectiveFamily() == BothFamilies {
		m.Family = family
	}
	for _, c := range []*Condition[MarkBits]{&m.Mark, &m.ConnMark} {
		if bits := c.set; c.negated && bits.Mask&(bits.Mask-1) == 0 {
			*c = Is(MarkBits{Value: bits.Value ^ bits.Mask, Mask: bits.Mask})
		}
	}
	if flags := m.L4.flags.set; m.L4.flags.negated && flags.Mask&(flags.Mask-1) == 0 {
		m.L4.flags = Is(TCPFlags{Mask: flags.Mask, Set: flags.Set ^ flags.Mask})
	}
	return m
}

// IsZero reports whether the match has no condition.
func (m Match) IsZero() bool { return m.String() == "" }

// String returns the golden form, such as "v4 out lo dst != 127.0.0.1/32 tcp dport != 15008 uid
// 1337", and "" for the zero Match.
func (m Match) String() string {
	words := make([]string, 0, 8)
	if m.Family != BothFamilies {
		words = append(words, m.Family.String())
	}
	words = m.In.appendText(words, "in")
	words = m.Out.appendText(words, "out")
	words = m.Src.appendText(words, "src")
	words = m.SrcSet.appendText(words, "src")
	words = m.Dst.appendText(words, "dst")
	words = m.DstSet.appendText(words, "dst")
	words = m.L4.appendText(words)
	words = m.UID.appendText(words, "uid")
	words = m.GID.appendText(words, "gid")
	words = m.Mark.appendText(words, "mark")
	words = m.ConnMark.appendText(words, "connmark")
	words = m.State.appendText(words, "state")
	if m.Direction != AnyDirection {
		words = append(words, "direction "+m.Direction.String())
	}
	return strings.Join(words, " ")
}

// Operand is a set of values that a condition compares a field with.
type Operand interface {
	PortSet | PrefixSet | InterfaceSet | UIDSet | GIDSet | SetRef | MarkBits | ConnState | TCPFlags

	IsEmpty() bool
	String() string
}

// Condition is a test of one field of a packet: the field is in a set ([Is]), or has a value that
// is not ([Not]). The zero value tests nothing. [Build] refuses a condition with an empty set, so
// that an unexpectedly empty list never turns a rule into one that matches everything.
type Condition[S Operand] struct {
	set     S
	present bool
	negated bool
}

// Is returns the condition that the field is a member of set.
func Is[S Operand](set S) Condition[S] { return Condition[S]{set: set, present: true} }

// Not returns the condition that the field exists and is not a member of set. A packet without the
// field (no owner, say) does not meet it.
func Not[S Operand](set S) Condition[S] { return Condition[S]{set: set, present: true, negated: true} }

// Present reports whether the condition tests anything. It is false for the zero value only.
func (c Condition[S]) Present() bool { return c.present }

// Negated reports whether [Not] made the condition.
func (c Condition[S]) Negated() bool { return c.negated }

// Set returns the set that the field is compared with.
func (c Condition[S]) Set() S { return c.set }

// appendText appends the field's name and the condition, or nothing for the zero value.
func (c Condition[S]) appendText(words []string, field string) []string {
	switch {
	case !c.present:
		return words
	case c.negated:
		return append(words, field+" != "+c.set.String())
	default:
		return append(words, field+" "+c.set.String())
	}
}

// Mark is a packet's mark (SO_MARK, nfmark), for rules and policy routing, or a connection's.
type Mark uint32

// MarkBits are the bits of a mark that Mask selects, with the values they have in Value. The zero
// value selects no bit. [Build] refuses bits of Value outside Mask.
type MarkBits struct {
	Value, Mask Mark
}

// WholeMark returns the bits of a mark that equals value.
func WholeMark(value Mark) MarkBits { return MarkBits{value, ^Mark(0)} }

// IsEmpty reports whether no bit is selected.
func (m MarkBits) IsEmpty() bool { return m.Mask == 0 }

// Matches reports whether the selected bits of mark have these values.
func (m MarkBits) Matches(mark Mark) bool { return mark&m.Mask == m.Value }

// Write returns mark with the selected bits replaced by these values.
func (m MarkBits) Write(mark Mark) Mark { return mark&^m.Mask | m.Value }

// String returns value and mask in hexadecimal ("0x539/0xff"), without a whole mask.
func (m MarkBits) String() string {
	if m.Mask == ^Mark(0) {
		return fmt.Sprintf("0x%x", uint32(m.Value))
	}
	return fmt.Sprintf("0x%x/0x%x", uint32(m.Value), uint32(m.Mask))
}

// ConnState is a set of states that connection tracking can give a packet (iptables-extensions(8),
// conntrack). The zero value is the empty set; | joins states.
type ConnState uint8

// The states.
const (
	// StateNew: the packet starts a connection, or is the first one seen of it.
	StateNew ConnState = 1 << iota
	// StateEstablished: packets were seen in both directions.
	StateEstablished
	// StateRelated: the packet starts a connection related to another, or is an error about one.
	StateRelated
	// StateInvalid: the packet belongs to no connection or does not fit into it.
	StateInvalid
	// StateUntracked: [NoTrack] took the packet out of connection tracking.
	StateUntracked
)

// IsEmpty reports whether the set has no state.
func (s ConnState) IsEmpty() bool { return s == 0 }

// String returns the states in order, separated by commas, such as "established,related".
func (s ConnState) String() string {
	return bitNames(s, "new", "established", "related", "invalid", "untracked")
}

// nameOrNumber returns the name of a value, or its kind and number if it has none.
func nameOrNumber[T ~uint8](value T, kind string, names []string) string {
	if int(value) < len(names) && names[value] != "" {
		return names[value]
	}
	return fmt.Sprintf("%s %d", kind, uint8(value))
}

// bitNames returns the names of the bits that are set, separated by commas.
func bitNames[T ~uint8](set T, names ...string) string {
	var words []string
	for i, name := range names {
		if set&(1<<i) != 0 {
			words = append(words, name)
		}
	}
	return strings.Join(words, ",")
}

// Direction is the direction of a packet within its connection, as connection tracking sees it. The
// zero value stands for both. A packet without a connection, because it is invalid or [NoTrack]
// took it out of tracking, has no direction and meets no condition on one.
type Direction uint8

// The directions.
const (
	AnyDirection Direction = iota
	// DirectionOriginal: the packet comes from the side that opened the connection.
	DirectionOriginal
	// DirectionReply: the packet goes to the side that opened the connection. Its state is
	// established, or related for an ICMP error.
	DirectionReply
)

// String returns "any", "original" or "reply".
func (d Direction) String() string {
	return nameOrNumber(d, "direction", []string{AnyDirection: "any", DirectionOriginal: "original", DirectionReply: "reply"})
}
