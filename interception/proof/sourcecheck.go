// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// badSources returns the packets that IPv4 routing discards on arrival by a link: martians, and
// those whose source does not lead back by it.
func (e *engine) badSources(t thread) (martians, invalid ref) {
	martians, invalid = never, never
	rest := e.ofFamily(interception.IPv4)
	add := func(of ref, out linkName) {
		martian, filtered := e.sourceCauses(t, out)
		martians, invalid = e.or(martians, e.and(of, martian)), e.or(invalid, e.and(of, filtered))
		rest = e.without(rest, of)
	}
	// The link that packets would leave by matters to policy rules only.
	if e.net.Forwarding(interception.IPv4) && (e.net.Custom() || e.net.SourceFilter(t.in) != 0) {
		for _, w := range e.ways(t.selectors(t.in)) {
			add(e.and(rest, w.where), w.value.link)
		}
	}
	add(rest, loopback)
	return martians, invalid
}

// strictFilter is the value of rp_filter that requires the route back to be by the same link.
const strictFilter = 1

// sourceCauses returns martians, and packets whose source does not lead back, among those that
// would leave by a link; lo if they are local.
func (e *engine) sourceCauses(t thread, out linkName) (martians, invalid ref) {
	src, loops := t.src.address, never
	if !e.net.SwitchedOn("route_localnet", t.in) {
		loops = e.or(e.within(src, loopbacks()), e.within(t.dst.address, loopbacks()))
	}
	filters, accepts := e.net.SourceFilter(t.in) != 0, e.net.SwitchedOn("accept_local", t.in)
	switch {
	case filters || e.net.Custom() && !accepts:
		owned, invalid := e.wayBackCauses(t, out)
		return e.or(loops, owned), invalid
	case !accepts:
		return e.or(loops, e.within(src, e.net.addresses())), never
	default:
		return loops, never
	}
}

// wayBackCauses looks up the way back to the source: it returns the packets with own sources, and
// those whose source does not lead back.
func (e *engine) wayBackCauses(t thread, out linkName) (owned, invalid ref) {
	filter, accepts := e.net.SourceFilter(t.in), e.net.SwitchedOn("accept_local", t.in)
	back := selectors{src: t.dst.address, dst: t.src.address, in: out}
	if e.net.SwitchedOn("src_valid_mark", t.in) {
		back.mark = t.mark
	}
	owned, valid := never, never
	for _, w := range e.ways(back) {
		switch local := w.value.link == loopback; {
		case local && !accepts:
			owned = e.or(owned, w.where)
		case w.value.link == t.in || filter != strictFilter && len(e.own4(t.in)) > 0:
			valid = e.or(valid, w.where)
		case local && !w.value.foreign:
			valid = e.or(valid, e.and(w.where, e.within(t.src.address, interception.Prefixes(e.own4(t.in)...))))
		}
	}
	if filter == 0 {
		return owned, never
	}
	return owned, e.not(e.or(owned, valid))
}

// own4 returns the IPv4 addresses of a link, as prefixes of one address.
func (e *engine) own4(link linkName) []netip.Prefix {
	var own []netip.Prefix
	for _, p := range e.net.link(link).Addresses {
		if p.Addr().Is4() {
			own = append(own, netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
		}
	}
	return own
}
