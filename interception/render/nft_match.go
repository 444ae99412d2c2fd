// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// matchWords returns the conditions in nft's syntax, in the order in which the kernel checks them.
// lengths has those of the sets of networks.
func matchWords(m interception.Match, lengths map[interception.SetName]int) []string {
	var words []string
	switch m.Family {
	case interception.IPv4:
		words = append(words, "meta nfproto ipv4")
	case interception.IPv6:
		words = append(words, "meta nfproto ipv6")
	case interception.BothFamilies:
	}
	words = append(words, interfaceWords("iifname", m.In)...)
	words = append(words, interfaceWords("oifname", m.Out)...)
	ip := "ip"
	if m.EffectiveFamily() == interception.IPv6 {
		ip = "ip6"
	}
	words = append(words, condition(ip+" saddr", m.Src, prefixOperands)...)
	words = append(words, setWords(ip+" saddr", m.SrcSet, lengths)...)
	words = append(words, condition(ip+" daddr", m.Dst, prefixOperands)...)
	words = append(words, setWords(ip+" daddr", m.DstSet, lengths)...)
	words = append(words, transportWords(m.L4)...)
	words = append(words, condition("meta skuid", m.UID, rangeOperands)...)
	words = append(words, condition("meta skgid", m.GID, rangeOperands)...)
	words = append(words, markWords("meta mark", m.Mark)...)
	words = append(words, markWords("ct mark", m.ConnMark)...)
	words = append(words, stateWords(m.State)...)
	if m.Direction != interception.AnyDirection {
		words = append(words, "ct direction "+m.Direction.String())
	}
	return words
}

func transportWords(l interception.L4) []string {
	protocol := l.Protocol()
	ports := condition(protocol.String()+" sport", l.SrcPort(), rangeOperands)
	ports = append(ports, condition(protocol.String()+" dport", l.DstPort(), rangeOperands)...)
	ports = append(ports, flagWords(l.TCPFlags())...)
	if len(ports) == 0 && protocol != interception.AnyProtocol {
		return []string{"meta l4proto " + protocol.String()}
	}
	return ports
}

// condition returns the words of a condition: one operand by itself, several in braces.
func condition[S interception.Operand](field string, c interception.Condition[S], operands func(S) []string) []string {
	if !c.Present() {
		return nil
	}
	if c.Negated() {
		field += " !="
	}
	values := operands(c.Set())
	if len(values) == 1 {
		return []string{field + " " + values[0]}
	}
	return []string{field + " { " + strings.Join(values, ", ") + " }"}
}

// interfaceWords compares with each pattern: nft cannot read its own list of adjacent ones.
func interfaceWords(field string, c interception.Condition[interception.InterfaceSet]) []string {
	names, patterns := lower.InterfaceNames(c.Set())
	var words []string
	if len(names) > 0 {
		words = condition(field, c, func(interception.InterfaceSet) []string { return quoted(names) })
	}
	for _, pattern := range quoted(patterns) {
		words = append(words, condition(field, c, func(interception.InterfaceSet) []string { return []string{pattern} })...)
	}
	return words
}

func quoted(names []interception.Interface) []string {
	var words []string
	for _, name := range names {
		words = append(words, strconv.Quote(string(name)))
	}
	return words
}

func markWords(field string, c interception.Condition[interception.MarkBits]) []string {
	if !c.Present() {
		return nil
	}
	mark := c.Set()
	if mark.Mask == wholeMask {
		return []string{fmt.Sprintf("%s %s 0x%x", field, equality(c.Negated()), uint32(mark.Value))}
	}
	return []string{fmt.Sprintf("%s & 0x%x %s 0x%x", field, uint32(mark.Mask), equality(c.Negated()), uint32(mark.Value))}
}

func stateWords(c interception.Condition[interception.ConnState]) []string {
	switch {
	case !c.Present():
		return nil
	case c.Negated():
		return []string{"ct state ! " + c.Set().String()}
	default:
		return []string{"ct state " + c.Set().String()}
	}
}

func flagWords(c interception.Condition[interception.TCPFlags]) []string {
	if !c.Present() {
		return nil
	}
	return []string{fmt.Sprintf("tcp flags & (%s) %s %s", flagSum(c.Set().Mask), equality(c.Negated()), flagSum(c.Set().Set))}
}

func flagSum(flags interception.TCPFlag) string {
	if flags == 0 {
		return "0"
	}
	return strings.ReplaceAll(flags.String(), ",", " | ")
}

func equality(negated bool) string {
	if negated {
		return "!="
	}
	return "=="
}

func prefixOperands(set interception.PrefixSet) []string {
	var words []string
	for _, interval := range lower.Intervals(set) {
		words = append(words, interval.String())
	}
	return words
}

// setWords writes a lookup of the address in a set, or of its leading bits in a set of networks.
func setWords(field string, c interception.Condition[interception.SetRef], lengths map[interception.SetName]int) []string {
	bits := lengths[c.Set().Name]
	if all := netip.IPv4Unspecified(); bits != 0 {
		if c.Set().Family == interception.IPv6 {
			all = netip.IPv6Unspecified()
		}
		if bits != all.BitLen() {
			field += " & " + mask(all, bits).String()
		}
	}
	return condition(field, c, func(ref interception.SetRef) []string { return []string{"@" + lower.SetName(ref.Name, bits)} })
}

// mask returns an address of the same length whose first bits are set.
func mask(all netip.Addr, bits int) netip.Addr {
	mask, _ := netip.AddrFromSlice(net.CIDRMask(bits, all.BitLen()))
	return mask
}

func rangeOperands[T ~uint16 | ~uint32](set interception.RangeSet[T]) []string {
	var words []string
	for _, r := range set.Ranges() {
		words = append(words, r.String())
	}
	return words
}
