// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// matchWords are the conditions as nft writes them, in the order in which the kernel checks them.
func matchWords(m interception.Match) []string {
	var words []string
	switch m.Family {
	case interception.IPv4:
		words = append(words, "meta nfproto ipv4")
	case interception.IPv6:
		words = append(words, "meta nfproto ipv6")
	case interception.BothFamilies:
	}
	words = append(words, condition("iifname", m.In, interfaceOperands)...)
	words = append(words, condition("oifname", m.Out, interfaceOperands)...)
	ip := "ip"
	if m.EffectiveFamily() == interception.IPv6 {
		ip = "ip6"
	}
	words = append(words, condition(ip+" saddr", m.Src, prefixOperands)...)
	words = append(words, condition(ip+" saddr", m.SrcSet, setOperands)...)
	words = append(words, condition(ip+" daddr", m.Dst, prefixOperands)...)
	words = append(words, condition(ip+" daddr", m.DstSet, setOperands)...)
	words = append(words, transportWords(m.L4)...)
	words = append(words, condition("meta skuid", m.UID, rangeOperands)...)
	return append(words, condition("meta skgid", m.GID, rangeOperands)...)
}

func transportWords(l interception.L4) []string {
	protocol := l.Protocol()
	ports := condition(protocol.String()+" sport", l.SrcPort(), rangeOperands)
	ports = append(ports, condition(protocol.String()+" dport", l.DstPort(), rangeOperands)...)
	if len(ports) == 0 && protocol != interception.AnyProtocol {
		return []string{"meta l4proto " + protocol.String()}
	}
	return ports
}

// condition is the words of one condition: a single operand as it is, several as a set in braces.
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

func interfaceOperands(set interception.InterfaceSet) []string {
	var words []string
	for _, name := range set.Names() {
		words = append(words, strconv.Quote(string(name)))
	}
	return words
}

func prefixOperands(set interception.PrefixSet) []string {
	var words []string
	for _, interval := range Intervals(set) {
		words = append(words, interval.String())
	}
	return words
}

func setOperands(ref interception.SetRef) []string { return []string{"@" + SetName(ref.Name)} }

func rangeOperands[T ~uint16 | ~uint32](set interception.RangeSet[T]) []string {
	var words []string
	for _, r := range set.Ranges() {
		words = append(words, r.String())
	}
	return words
}
