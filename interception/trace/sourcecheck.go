// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// sourceCause reports why IPv4 discards a packet that comes by a link, because of its source or a
// loopback address. out is the link that it would leave by, lo if it is local.
func (n *network) sourceCause(h Header, link, out interception.Interface) Cause {
	src := h.Src.Addr()
	loops := src.IsLoopback() || h.Dst.Addr().IsLoopback()
	filters, accepts := n.SourceFilter(link) != 0, n.SwitchedOn("accept_local", link)
	switch {
	case loops && !n.SwitchedOn("route_localnet", link):
		return Martian
	case filters || n.Custom() && !accepts:
		return n.wayBackCause(h, link, out)
	case !accepts && n.hasAddress(src):
		return Martian
	default:
		return 0
	}
}

// wayBackCause looks up the way back to the source.
func (n *network) wayBackCause(h Header, link, out interception.Interface) Cause {
	src, filter := h.Src.Addr(), n.SourceFilter(link)
	back := selectors{src: h.Dst.Addr(), dst: src, in: out}
	if n.SwitchedOn("src_valid_mark", link) {
		back.mark = h.Mark
	}
	found, cause := n.route(back)
	switch {
	case cause == 0 && found.link.Name == loopback && !n.SwitchedOn("accept_local", link):
		return Martian
	case filter == 0 || cause == 0 && n.leadsBy(found, src, link):
		return 0
	// Without an address, or without a route, no source is valid.
	case cause != 0 || filter == strictFilter || !n.hasIPv4(link):
		return Filtered
	default:
		return 0
	}
}

// strictFilter is the value of rp_filter that requires the route back to be by the same link
// (net/ipv4/fib_frontend.c, __fib_validate_source).
const strictFilter = 1

// leadsBy reports whether a route to a source is by a link: for an own address, by the link that
// has it.
func (n *network) leadsBy(found route, src netip.Addr, link interception.Interface) bool {
	if found.link.Name != loopback || found.foreign {
		return found.link.Name == link
	}
	at, _ := n.link(link)
	return at.has(src)
}

func (n *network) hasIPv4(link interception.Interface) bool {
	at, _ := n.link(link)
	return slices.ContainsFunc(at.Addresses, func(p netip.Prefix) bool { return p.Addr().Is4() })
}
