// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// sources returns the addresses for packets without a source that take a way. Packets in no choice
// get no source.
func (e *engine) sources(w way) []choice[address] {
	if w.source.IsValid() {
		return []choice[address]{{address{given, w.source}, e.ofFamily(interception.FamilyOf(w.source))}}
	}
	if w.link != loopback {
		return first(e.question, slices.Concat(e.chosen(e.net.link(w.link).Addresses), e.chosen(e.others())))
	}
	itself := choice[address]{value: w.dst, where: e.ofFamily(interception.IPv4)}
	if w.borrowed {
		itself.where = e.and(itself.where, e.variable(e.transparent))
	}
	if !w.foreign {
		var four []choice[address]
		local, sources := e.net.localPrefixes()
		for i, p := range local {
			where := e.and(e.ofFamily(interception.IPv4), e.inPrefix(w.dst, p))
			four = append(four, choice[address]{address{given, sources[i].Addr()}, where})
		}
		itself.where = e.ofFamily(interception.IPv6)
		return append(first(e.question, four), itself)
	}
	var six []choice[address]
	far := e.without(e.ofFamily(interception.IPv6), e.inPrefix(w.dst, netip.MustParsePrefix("fe80::/10")))
	for _, c := range e.chosen(global(e.net.link(loopback).Addresses)) {
		six = append(six, choice[address]{c.value, e.and(far, c.where)})
	}
	for _, c := range e.chosen(e.others()) {
		six = append(six, choice[address]{c.value, e.and(e.ofFamily(interception.IPv6), c.where)})
	}
	return append(first(e.question, six), itself)
}

// global returns the IPv6 addresses of the greatest scope.
func global(addresses []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(addresses), func(p netip.Prefix) bool {
		return p.Addr().Is4() || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast()
	})
}

// others returns the addresses of all links but lo.
func (e *engine) others() []netip.Prefix {
	var all []netip.Prefix
	for _, l := range e.net.Links {
		if l.Name != loopback {
			all = append(all, l.Addresses...)
		}
	}
	return all
}

// chosen returns the link's address that the kernel chooses for a destination.
func (e *engine) chosen(addresses []netip.Prefix) []choice[address] {
	var four, six []netip.Prefix
	for _, p := range addresses {
		if p.Addr().Is4() {
			four = append(four, p)
		} else {
			six = append(six, p)
		}
	}
	return append(e.chosen4(four), e.chosen6(six)...)
}

// chosen4 returns the first address of the longest prefix that holds the destination, else the
// first.
func (e *engine) chosen4(addresses []netip.Prefix) []choice[address] {
	if len(addresses) == 0 {
		return nil
	}
	longest := slices.Clone(addresses)
	slices.SortStableFunc(longest, func(a, b netip.Prefix) int { return cmp.Compare(b.Bits(), a.Bits()) })
	var choices []choice[address]
	for _, p := range longest {
		choices = append(choices, choice[address]{address{given, p.Addr()}, e.inPrefix(own(ownDst).address, p)})
	}
	choices = append(choices, choice[address]{address{given, addresses[0].Addr()}, e.ofFamily(interception.IPv4)})
	return first(e.question, choices)
}

// chosen6 compares each address with the best earlier one, by scope and by the length of the common
// prefix.
func (e *engine) chosen6(addresses []netip.Prefix) []choice[address] {
	var best []choice[netip.Prefix]
	for i, p := range addresses {
		if i == 0 {
			best = []choice[netip.Prefix]{{p, e.ofFamily(interception.IPv6)}}
			continue
		}
		won := never
		for j, b := range best {
			better := e.and(b.where, e.better6(p, b.value))
			best[j].where = e.without(b.where, better)
			won = e.or(won, better)
		}
		best = append(best, choice[netip.Prefix]{p, won})
	}
	var choices []choice[address]
	for _, b := range best {
		choices = append(choices, choice[address]{address{given, b.value.Addr()}, b.where})
	}
	return choices
}

// better6 returns the packets for which one address is a better source than another (RFC 6724
// section 5, rules 2 and 8).
func (e *engine) better6(p, other netip.Prefix) ref {
	linkLocal := e.inPrefix(own(ownDst).address, netip.MustParsePrefix("fe80::/10"))
	fits := func(p netip.Prefix) ref {
		if p.Addr().IsLinkLocalUnicast() {
			return linkLocal
		}
		return e.not(linkLocal)
	}
	longer := never
	for bits := 1; bits <= p.Bits(); bits++ {
		shares := e.inPrefix(own(ownDst).address, netip.PrefixFrom(p.Addr(), bits))
		if bits <= other.Bits() {
			shares = e.without(shares, e.inPrefix(own(ownDst).address, netip.PrefixFrom(other.Addr(), bits)))
		}
		longer = e.or(longer, shares)
	}
	fit, otherFit := fits(p), fits(other)
	return e.or(e.without(fit, otherFit), e.and(e.iff(fit, otherFit), longer))
}

// redirected returns the address to which RedirectTo sends a packet that came by a link: the link's
// first that can replace the destination.
func (e *engine) redirected(l *trace.Link, to address) []choice[address] {
	var choices []choice[address]
	for _, p := range l.Addresses {
		choices = append(choices, choice[address]{address{given, p.Addr()}, e.standsFor(p.Addr(), to)})
	}
	return first(e.question, choices)
}

// standsFor returns the packets whose redirect to the address IPv4, or the class of an IPv6
// address, allows.
func (e *engine) standsFor(addr netip.Addr, to address) ref {
	if addr.Is4() {
		return e.ofFamily(interception.IPv4)
	}
	classes := []netip.Prefix{
		netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fec0::/10"), netip.MustParsePrefix("::/96"),
	}
	global := e.without(e.ofFamily(interception.IPv6), e.within(to, interception.Prefixes(classes...)))
	for _, class := range classes {
		if class.Contains(addr) {
			return e.or(global, e.inPrefix(to, class))
		}
	}
	return global
}
