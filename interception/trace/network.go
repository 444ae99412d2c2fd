// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// The routing tables that every namespace has, and the priorities of the rules that lead to them
// (ip-rule(8)).
const (
	defaultTable    interception.RoutingTable = 253
	mainTable       interception.RoutingTable = 254
	localTable      interception.RoutingTable = 255
	mainPriority    uint32                    = 32766
	defaultPriority uint32                    = 32767
)

// Routing is a namespace with everything that its plans add to its routing. Package proof walks by
// it, too.
type Routing struct {
	// Namespace has the links and the addresses of the plans besides its own.
	Namespace
	// Own is the number of links of the namespace's own; the plans' links follow them.
	Own int
	// Routes are those of the namespace's own and of the plans, in their order. No table is 0: the
	// main table has its number.
	Routes []interception.Route
	// Rules are the kernel's policy rules and those of the plans, in the order of evaluation.
	Rules   []interception.PolicyRule
	sysctls map[string]int
}

// Routing returns the namespace with its plans, which must be valid. It leaves out an address on a
// link that the namespace lacks.
func (n Namespace) Routing() *Routing { return n.routing(nil) }

// routing is Routing with the links that plans of other namespaces make here.
func (n Namespace) routing(peers []Link) *Routing {
	s := &Routing{Namespace: n, Own: len(n.Links), sysctls: map[string]int{}}
	maps.Copy(s.sysctls, n.Sysctls)
	for _, r := range n.Routes {
		s.add(r)
	}
	s.Rules = []interception.PolicyRule{
		{Table: localTable}, {Table: mainTable, Priority: mainPriority}, {Family: interception.IPv4, Table: defaultTable, Priority: defaultPriority},
	}
	s.Links = slices.Concat(n.Links, peers)
	for _, plan := range n.Plans {
		for link := range interception.ObjectsOf[interception.Link](plan) {
			if _, there := s.link(link.Name); !there {
				s.Links = append(s.Links, Link{Name: link.Name, VXLAN: link.VXLAN, Geneve: link.Geneve})
			}
		}
	}
	for _, plan := range n.Plans {
		for _, object := range plan.Objects {
			s.add(object)
		}
	}
	// The kernel evaluates rules of equal priority in the order in which they were added: those of
	// the last plan first, as it was applied first.
	for _, plan := range slices.Backward(n.Plans) {
		for r := range interception.ObjectsOf[interception.PolicyRule](plan) {
			r.Table = cmp.Or(r.Table, mainTable)
			s.Rules = append(s.Rules, r)
		}
	}
	slices.SortStableFunc(s.Rules, func(a, b interception.PolicyRule) int { return cmp.Compare(a.Priority, b.Priority) })
	return s
}

func (n *Routing) add(object interception.Object) {
	switch o := object.(type) {
	case interception.Address:
		if link, ok := n.link(o.Device); ok && !slices.Contains(link.Addresses, o.Prefix) {
			link.Addresses = append(slices.Clone(link.Addresses), o.Prefix)
		}
	case interception.Route:
		o.Table = cmp.Or(o.Table, mainTable)
		n.Routes = append(n.Routes, o)
	case interception.Sysctl:
		n.sysctls[o.Key] = o.Value
	default: // links and policy rules are added elsewhere; tables and sets are read where they are needed
	}
}

// SwitchedOn reports whether an IPv4 setting is on for all links or for the given one
// (Documentation/networking/ip-sysctl.rst).
func (n *Routing) SwitchedOn(setting string, link interception.Interface) bool {
	return n.sysctls["ipv4/conf/all/"+setting] != 0 || n.sysctls["ipv4/conf/"+string(link)+"/"+setting] != 0
}

// SourceFilter returns how IPv4 validates the sources of packets that come by a link (rp_filter): 0
// for not at all, 1 for strictly, 2 for loosely.
func (n *Routing) SourceFilter(link interception.Interface) int {
	return max(n.sysctls["ipv4/conf/all/rp_filter"], n.sysctls["ipv4/conf/"+string(link)+"/rp_filter"])
}

// Forwarding reports whether the namespace forwards packets of a family.
func (n *Routing) Forwarding(family interception.Family) bool {
	key := "ipv4/ip_forward"
	if family == interception.IPv6 {
		key = "ipv6/conf/all/forwarding"
	}
	if value, set := n.sysctls[key]; set {
		return value != 0
	}
	return n.Forwards
}

// acceptsMarks reports whether the connections that a TCP listener without a mark accepts, over
// either family, have the mark of the packet that opened them (include/net/inet_sock.h,
// inet_request_mark).
func (n *Routing) acceptsMarks() bool { return n.sysctls["ipv4/tcp_fwmark_accept"] != 0 }

// Custom reports whether there are IPv4 policy rules or local routes other than the kernel's.
func (n *Routing) Custom() bool {
	return slices.ContainsFunc(n.Rules, func(r interception.PolicyRule) bool { return r.Family == interception.IPv4 && r.ID != "" }) ||
		slices.ContainsFunc(n.Routes, func(r interception.Route) bool {
			return r.Type == interception.RouteLocal && r.Destination.Addr().Is4()
		})
}

// Target returns the index of the rule that a rule's Goto leads to; false if there is none.
func (n *Routing) Target(r interception.PolicyRule) (int, bool) {
	i := slices.IndexFunc(n.Rules, func(to interception.PolicyRule) bool {
		return to.Priority == r.Goto && (to.Family == r.Family || to.Family == interception.BothFamilies)
	})
	return i, i >= 0
}

// network is the routing of a namespace that could exist.
type network struct{ *Routing }

// withPlans returns the namespace with its plans, which are valid.
func (n Namespace) withPlans(peers []Link) (*network, error) {
	s := n.routing(peers)
	for _, r := range n.Routes {
		if err := s.lacks(r); err != nil {
			return nil, fmt.Errorf("route to %s: %w", r.Destination, err)
		}
	}
	for _, plan := range n.Plans {
		for a := range interception.ObjectsOf[interception.Address](plan) {
			if _, ok := s.link(a.Device); !ok {
				return nil, fmt.Errorf("plan of %s: address %s (%s): the namespace has no link %s", plan.Owner, a.Prefix, a.ID, a.Device)
			}
		}
		for r := range interception.ObjectsOf[interception.Route](plan) {
			if err := s.lacks(r); err != nil {
				return nil, fmt.Errorf("plan of %s: route to %s (%s): %w", plan.Owner, r.Destination, r.ID, err)
			}
		}
	}
	return &network{s}, nil
}

// lacks returns an error about what the kernel would miss for a route.
func (n *Routing) lacks(r interception.Route) error {
	if _, ok := n.link(r.Device); r.Device != "" && !ok {
		return fmt.Errorf("the namespace has no link %s", r.Device)
	}
	if r.Source.IsValid() && !n.isLocal(r.Source) {
		return fmt.Errorf("the namespace has no address %s, which it prefers as source", r.Source)
	}
	return nil
}

// asker returns the source address with which a namespace asks for a neighbour at a link: the
// packet's, if it is the namespace's own, else one of the link (net/ipv4/arp.c, arp_solicit).
func (n *network) asker(link interception.Interface, h Header, hop netip.Addr) netip.Addr {
	if n.isLocal(h.Src.Addr()) {
		return h.Src.Addr()
	}
	at, _ := n.link(link)
	return n.chosen(at, hop)
}

// question is what a namespace asks for a neighbour: with an address of its own, or the zero Addr.
func question(asker, hop netip.Addr) Header {
	return Header{Src: netip.AddrPortFrom(asker, 0), Dst: netip.AddrPortFrom(hop, 0)}
}

// isNeighbour reports whether the namespace answers, by a link, the question of another one for an
// address. For IPv4 it does so for all its addresses, if routing would take the question as a
// packet (net/ipv4/arp.c, arp_process); for IPv6 for those of the link (net/ipv6/ndisc.c,
// ndisc_recv_ns).
func (n *network) isNeighbour(link interception.Interface, q Header) bool {
	hop := q.Dst.Addr()
	if hop.Is6() {
		at, _ := n.link(link)
		return at.has(hop)
	}
	if !q.Src.Addr().IsValid() {
		return n.isLocal(hop)
	}
	return n.onInput(q, link) == 0
}

// finds reports whether the sender of what a tunnel carries finds the neighbour that is its next
// hop. The question and the answer are within packets of the tunnel, too, which have no mark and
// may go another way. What is unpacked has the mark of the outer packet.
func (f *follower) finds(p passage) bool {
	q := question(p.asker, p.hop)
	to, asked := f.carry(p.sender, p.link, q)
	if to == nil {
		return false
	}
	q.Mark = asked.Header.Mark
	if !to.isNeighbour(asked.Tunnel, q) {
		return false
	}
	back, answered := f.carry(to, asked.Tunnel, question(p.hop, p.asker))
	return back == p.sender && answered.Tunnel == p.link
}

// carry follows what a namespace itself sends by a tunnel to the namespace that unpacks it, and
// returns the outcome there; nil if there is none.
func (f *follower) carry(from *network, link interception.Interface, h Header) (*network, Outcome) {
	if f.asks == maxNesting {
		return nil, Outcome{}
	}
	at, _ := from.link(link)
	by := at.tunnel()
	g := follower{wires: f.wires, networks: f.networks, flows: maps.Clone(f.flows), inner: []passage{{by: by}}, asks: f.asks + 1}
	g.on = passage{packet: by.outer(Tunnel{Namespace: from.Name, Link: link}, 0, h), ttl: defaultTTL}
	for n := from; n != nil; {
		if n = g.pass(n); len(g.inner) == 0 {
			return n, g.outcomes[len(g.outcomes)-1]
		}
	}
	return nil, Outcome{}
}

func (l *Link) has(addr netip.Addr) bool {
	return slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr() == addr })
}
