// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"strings"
)

// Match says which packets a rule applies to: those that meet every condition in it. The zero Match applies to all.
//
// A condition on an address makes the rule one of that address's family, also when it is negated: "not 127.0.0.1" says nothing
// about IPv6 packets, and does not match them.
type Match struct {
	// Family restricts the rule to packets of one family.
	Family Family
	// In and Out are the interfaces a packet came by and leaves by. In is known in the hooks Prerouting, Input and Forward;
	// Out in Forward, Output and Postrouting.
	In, Out Condition[InterfaceSet]
	// Src and Dst are the packet's addresses, at that point of its way, as literal prefixes of one family.
	Src, Dst Condition[PrefixSet]
	// SrcSet and DstSet are the same by reference to a [Set] of the plan.
	SrcSet, DstSet Condition[SetRef]
	// L4 is the transport protocol and its ports.
	L4 L4
	// UID and GID are the user and group of the socket that a locally made packet comes from. They are known in Output and
	// Postrouting; a packet without a socket meets neither Is nor Not.
	UID Condition[UIDSet]
	GID Condition[GIDSet]
	// Mark is the packet's mark, and ConnMark that of its connection, which is known behind connection tracking: not in raw.
	Mark, ConnMark Condition[MarkBits]
	// State is what connection tracking made of the packet: any of the states. It is not known in raw.
	State Condition[ConnState]
	// Direction restricts the rule to packets of one direction of their connection. It is not known in raw.
	Direction Direction
}

// families lists the families that the parts of the match name, in a fixed order, BothFamilies left out.
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

// EffectiveFamily is the one family that the match can apply to, given by Family or by an address condition, or
// [BothFamilies]. It is meaningful for a match that [Build] accepted.
func (m Match) EffectiveFamily() Family {
	if named := m.families(); len(named) > 0 {
		return named[0]
	}
	return BothFamilies
}

// canonical is the match in the one form that matches of the same meaning share: no family beside an address of it, and one bit that is
// not so as the bit that is otherwise.
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

// IsZero reports whether the match has no condition at all.
func (m Match) IsZero() bool { return m.String() == "" }

// String is the match in the golden form, such as "v4 out lo dst != 127.0.0.1/32 tcp dport != 15008 uid 1337"; "" for the
// zero Match.
func (m Match) String() string {
	var words []string
	if m.Family != BothFamilies {
		words = append(words, m.Family.String())
	}
	words = append(words, m.In.text("in")...)
	words = append(words, m.Out.text("out")...)
	words = append(words, m.Src.text("src")...)
	words = append(words, m.SrcSet.text("src")...)
	words = append(words, m.Dst.text("dst")...)
	words = append(words, m.DstSet.text("dst")...)
	words = append(words, m.L4.text()...)
	words = append(words, m.UID.text("uid")...)
	words = append(words, m.GID.text("gid")...)
	words = append(words, m.Mark.text("mark")...)
	words = append(words, m.ConnMark.text("connmark")...)
	words = append(words, m.State.text("state")...)
	if m.Direction != AnyDirection {
		words = append(words, "direction "+m.Direction.String())
	}
	return strings.Join(words, " ")
}

// Operand is what a condition compares with: a set of values, of the types of this package.
type Operand interface {
	PortSet | PrefixSet | InterfaceSet | UIDSet | GIDSet | SetRef | MarkBits | ConnState | TCPFlags

	IsEmpty() bool
	String() string
}

// Condition is a test of one field of a packet: that it is in a set ([Is]), or that it has a value which is not ([Not]). The
// zero value tests nothing. [Build] refuses a condition with an empty set, so that a list which turned out empty never
// widens a rule into one that matches everything.
type Condition[S Operand] struct {
	set     S
	present bool
	negated bool
}

// Is is the condition that the field is a member of set.
func Is[S Operand](set S) Condition[S] { return Condition[S]{set: set, present: true} }

// Not is the condition that the field is there and not a member of set. A packet without the field (no owner, say) does
// not meet it.
func Not[S Operand](set S) Condition[S] { return Condition[S]{set: set, present: true, negated: true} }

// Present reports whether there is something to test; it is false for the zero value only.
func (c Condition[S]) Present() bool { return c.present }

// Negated reports whether the condition was made by [Not].
func (c Condition[S]) Negated() bool { return c.negated }

// Set is what the field is compared with.
func (c Condition[S]) Set() S { return c.set }

// text renders the condition behind the name of its field; nothing when there is nothing to test.
func (c Condition[S]) text(field string) []string {
	switch {
	case !c.present:
		return nil
	case c.negated:
		return []string{field + " != " + c.set.String()}
	default:
		return []string{field + " " + c.set.String()}
	}
}

// Mark is a packet's mark (SO_MARK, nfmark) or a connection's (connmark): 32 bits that rules and policy routing share.
type Mark uint32

// MarkBits are some bits of a mark: those of Mask, with the values they have in Value. The zero value names no bit. Bits of Value
// outside of Mask are refused by [Build].
type MarkBits struct {
	Value, Mask Mark
}

// WholeMark is the mark with all its 32 bits.
func WholeMark(value Mark) MarkBits { return MarkBits{value, ^Mark(0)} }

// IsEmpty reports whether no bit is named.
func (m MarkBits) IsEmpty() bool { return m.Mask == 0 }

// Matches reports whether a mark has the named bits with these values.
func (m MarkBits) Matches(mark Mark) bool { return mark&m.Mask == m.Value }

// Write is the mark with the named bits replaced by these values.
func (m MarkBits) Write(mark Mark) Mark { return mark&^m.Mask | m.Value }

// String is value and mask in hexadecimal, such as "0x539/0xff", and the value alone when the mask is whole.
func (m MarkBits) String() string {
	if m.Mask == ^Mark(0) {
		return fmt.Sprintf("0x%x", uint32(m.Value))
	}
	return fmt.Sprintf("0x%x/0x%x", uint32(m.Value), uint32(m.Mask))
}

// ConnState is a set of states in which connection tracking can find a packet (iptables-extensions(8), conntrack). The zero value
// is the empty set; states are joined by |.
type ConnState uint8

// The states.
const (
	// StateNew: the packet starts a connection, or the first one of it that was seen.
	StateNew ConnState = 1 << iota
	// StateEstablished: packets were seen in both directions.
	StateEstablished
	// StateRelated: the packet starts a connection that belongs to another, or is an error about one.
	StateRelated
	// StateInvalid: the packet belongs to no connection, or does not fit into it.
	StateInvalid
	// StateUntracked: the packet was taken out of connection tracking ([NoTrack]).
	StateUntracked
)

// IsEmpty reports whether no state is in the set.
func (s ConnState) IsEmpty() bool { return s == 0 }

// String lists the states, separated by commas, such as "related,established" in the order of their numbers.
func (s ConnState) String() string {
	var words []string
	for i, word := range []string{"new", "established", "related", "invalid", "untracked"} {
		if s&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	return strings.Join(words, ",")
}

// Direction says whether a packet goes the way that its connection was opened or back, as connection tracking sees it. The zero
// value stands for both. A packet that connection tracking did not find a connection for, because it is invalid or was taken out
// of tracking ([NoTrack]), has no direction and meets no condition on one.
type Direction uint8

// The directions.
const (
	AnyDirection Direction = iota
	// DirectionOriginal: the packet goes from the side that opened the connection. The first packet of a connection does.
	DirectionOriginal
	// DirectionReply: the packet goes to the side that opened the connection. Its state is established, or related if it is an
	// ICMP error.
	DirectionReply
)

// String is "any", "original" or "reply".
func (d Direction) String() string {
	switch d {
	case AnyDirection:
		return "any"
	case DirectionOriginal:
		return "original"
	case DirectionReply:
		return "reply"
	default:
		return fmt.Sprintf("direction %d", uint8(d))
	}
}
