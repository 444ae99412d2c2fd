// SPDX-License-Identifier: Apache-2.0

package rendercheck

import (
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// match returns a match that sometimes has each of the conditions known in the table and the hook.
func (p planner) match(table interception.TableKind, hook interception.Hook) interception.Match {
	var m interception.Match
	family := p.family()
	p.sometimes(func() { m.Family = family })
	p.sometimes(func() { m.Src = randomly(p, p.prefixes(family, 1+p.IntN(2))) })
	p.sometimes(func() { m.Dst = randomly(p, p.prefixes(family, 1+p.IntN(2))) })
	if sets := p.sets[family]; len(sets) > 0 {
		p.sometimes(func() { m.SrcSet = randomly(p, sets[p.IntN(len(sets))]) })
		p.sometimes(func() { m.DstSet = randomly(p, sets[p.IntN(len(sets))]) })
	}
	p.sometimes(func() { m.L4 = p.transport() })
	p.sometimes(func() { m.Mark = randomly(p, p.mark()) })
	if table != interception.Raw {
		p.sometimes(func() { m.ConnMark = randomly(p, p.mark()) })
		p.sometimes(func() { m.State = randomly(p, interception.ConnState(1+p.IntN(31))) })
		p.sometimes(func() { m.Direction = interception.Direction(p.IntN(3)) })
	}
	if hook == interception.Prerouting {
		p.sometimes(func() { m.In = randomly(p, p.interfaces()) })
	} else {
		p.sometimes(func() { m.Out = randomly(p, p.interfaces()) })
		p.sometimes(func() { m.UID = randomly(p, interception.UIDs(numbers[interception.UID](p, 4)...)) })
		p.sometimes(func() {
			m.GID = randomly(p, interception.GIDs(numbers[interception.GID](p, []int{2, 30}[p.IntN(2)])...))
		})
	}
	return m
}

func (p planner) sometimes(do func()) {
	if p.IntN(5) == 0 {
		do()
	}
}

// randomly returns a condition, negated half of the time.
func randomly[S interception.Operand](p planner, set S) interception.Condition[S] {
	if p.IntN(2) == 0 {
		return interception.Not(set)
	}
	return interception.Is(set)
}

func (p planner) family() interception.Family {
	return []interception.Family{interception.IPv4, interception.IPv6}[p.IntN(2)]
}

func (p planner) mark() interception.MarkBits {
	mask := interception.Mark([]uint32{0xff, 0xffffffff, 0xff00, 1}[p.IntN(4)])
	return interception.MarkBits{Value: interception.Mark(p.Uint32()) & mask, Mask: mask}
}

func (p planner) interfaces() interception.InterfaceSet {
	names := []interception.Interface{"lo", "eth0", "eth*", "eth0*", "net1.4000", "fourteen-lett*"}
	p.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return interception.Interfaces(names[:1+p.IntN(3)]...)
}

func (p planner) transport() interception.L4 {
	l := interception.TCP()
	switch p.IntN(4) {
	case 0:
		l = interception.UDP()
	case 1:
		l = l.Flags(interception.Opening())
	case 2:
		l = l.NotFlags(interception.TCPFlags{Mask: interception.FlagRST | interception.FlagPSH})
	}
	switch ports := p.ports(); p.IntN(6) {
	case 0:
		l = l.To(ports)
	case 1:
		l = l.NotTo(ports)
	case 2:
		l = l.From(ports)
	case 3:
		l = l.NotFrom(ports).To(p.ports())
	case 4:
		l = l.From(ports).NotTo(p.ports())
	}
	return l
}

func (p planner) ports() interception.PortSet {
	if p.IntN(20) == 0 {
		return interception.AllPorts()
	}
	return interception.Ports(numbers[interception.Port](p, []int{1, 4, 40, 400}[p.IntN(4)])...)
}

// numbers returns random numbers, some of them neighbours, and some at an end. Ids are small: tests
// have no others.
func numbers[N ~uint16 | ~uint32](p planner, most int) []N {
	last := []N{0, 80, 1337, 60000}[p.IntN(4)]
	list := []N{last}
	for range p.IntN(most) {
		if last += N(1 + p.IntN(3)); !slices.Contains(list, last) {
			list = append(list, last)
		}
	}
	return list
}

// prefixes returns prefixes close to each other, so that some nest or touch.
func (p planner) prefixes(family interception.Family, n int) interception.PrefixSet {
	list := make([]netip.Prefix, n)
	for i := range list {
		bytes := [16]byte{[]byte{0, 10, 255}[p.IntN(3)], byte(p.IntN(4) << 6), byte(p.IntN(2)), byte(p.IntN(256)), 15: byte(p.IntN(256))}
		if family == interception.IPv4 {
			list[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte(bytes[:4])), p.IntN(33))
		} else {
			list[i] = netip.PrefixFrom(netip.AddrFrom16(bytes), p.IntN(129))
		}
	}
	return interception.Prefixes(list...)
}
