// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// MeshedSet returns the name of the live set that holds the addresses of the node's meshed pods, of
// one family, in [NodePlan]. The owner of a member is the pod's UID.
func MeshedSet(family interception.Family) interception.SetName {
	return interception.SetName("meshed-" + family.String())
}

const (
	// nodeFirst moves jumps before those of other programs: the first translation of a connection
	// counts, and what Calico's Felix accepts in iptables' mangle passes no later jump.
	nodeFirst = -10
	// afterTranslation moves a jump of mangle in Prerouting after the nat tables, which translate
	// the addresses of services to those of pods. Their priorities differ by 50.
	afterTranslation = 60
)

// NodePlan returns the plan for the node's own network namespace, where pods are captured without
// access to their namespaces: by their addresses, in [MeshedSet]. [ProxyPlan] is the other half, in
// the namespace of the proxy. Two wires join both namespaces:
//
//	node's namespace                              proxy's namespace
//	                    +-- inbound wire ------->  :15006, :15008
//	pods, network ------+-- outbound wire ------>  :15001
//	              <-----+-- outbound wire <------  replies, and connections in the name of others
//
// The first packet of a TCP connection decides about the connection. The first matching line
// counts:
//
//  1. by a wire, as the proxy opens connections in the name of others: to its destination, and what
//     answers it to the proxy
//  2. from a meshed pod: to NodeNumbers.OutboundPort, by the outbound wire
//  3. from an address of the proxy itself: left alone
//  4. to a meshed pod, after the translation of a service's address: by the inbound wire to
//     NodeNumbers.TunnelPort if that is its port, else to NodeNumbers.InboundPort
//  5. anything else: left alone
//
// The proxy finds the original destination in the local address of the connections that it accepts,
// and may use its client's address as the source of its own ([ProxyPlan]).
//
// What the node's own programs send is left alone, but for what answers line 1, and so is what pods
// send to the node's addresses. What is not TCP never reaches the wires, but for ICMP errors about
// connections of line 1. With NodeProxy.DNS, queries of meshed pods over UDP are translated to the
// proxy's address and NodeNumbers.DNSPort.
//
// A connection that was there before its pod became a member of the set stays as it is, and one
// that is captured stays so to its end.
//
// Packets of captured connections that would leave by another way than the wires are rejected:
// without a proxy (the zero NodeProxy), without its wires, and for families that it does not serve,
// new connections of meshed pods fail. Nothing else is rejected.
//
// Connections that the proxy opens begin in NodeNumbers.Zone: one of them may have the addresses
// and ports of a connection that the proxy has taken, and the kernel then gives the later one of
// both another source port.
//
// The plan needs no link, route or setting of other programs: it changes settings of its own
// interfaces only.
//
// No other program masquerades what goes to the proxy, which sees the client's address. Other
// programs' translations of the destination are kept from a captured connection where they share
// iptables' chains with the plan. In nf_tables kube-proxy translates the address of a service
// before the proxy sees it, and only there is line 4 after translations: in iptables, connections
// to a service's address that this node translates to a meshed pod are not captured. Nor does
// iptables translate what a meshed pod sends to a node port at an address of its own node: there,
// such connections are refused.
//
// Where kube-proxy works in its IPVS mode, the node has the addresses of services, and what pods
// send to the node is left alone: connections to services are not captured.
//
// The sets are live: the caller edits their members as pods come and go. Without Facts.IPv6 there
// is nothing for IPv6. The errors wrap [ErrNumbers] and [ErrNodeProxy].
//
// The other is a proxy that has wires and routes, and gets no new connections. Of the two, one is
// of an even generation and the other of an odd one. A change of proxies takes three plans, between
// which ProxyPlan is applied to the successor's namespace:
//
//	NodePlan(former, ..., successor)    the successor's wires and routes are there
//	NodePlan(successor, ..., former)    the mark of new connections changes
//	NodePlan(successor, ...)            the former proxy's wires and routes go
//
// Each new connection reaches one of both proxies. Those that the former proxy has taken go on
// until the third plan, and are rejected then. The first may be the zero NodeProxy: then new
// connections of meshed pods fail, and those that the other proxy has taken go on. There can be one
// other beside it. A step with a zero other is left out. [ProxySwitch] returns these plans as a
// [Rollout].
func NodePlan(
	p NodeProxy, n NodeNumbers, f interception.Facts, owner interception.Owner, others ...NodeProxy,
) (*interception.Plan, error) {
	if p.IsZero() && len(others) > 0 { // new connections fail, and are told from those of the other
		p.Generation = (others[0].Generation + 1) % 2
	}
	if err := errors.Join(n.Validate(), p.Validate(), validateOthers(p, others)); err != nil {
		return nil, fmt.Errorf("plan ambient node: %w", err)
	}
	return interception.Build(owner, func(b *interception.Builder) {
		planner := nodePlanner{
			NodeProxy: p, NodeNumbers: n, facts: f, builder: b,
			meshed: map[interception.Family]interception.SetRef{}, shared: map[interception.Family]interception.SetRef{},
		}
		for _, o := range append([]NodeProxy{p}, others...) {
			planner.proxies = append(planner.proxies, proxyNumbers{o, n.Generation(o.Generation)})
		}
		if planner.isWired() {
			planner.in, planner.out = n.InboundWire.Node+"*", n.OutboundWire.Node+"*"
			planner.wires = interception.Is(interception.Interfaces(planner.in, planner.out))
		}
		for _, o := range planner.wired() {
			planner.network(o)
		}
		for _, family := range families(f) {
			planner.meshed[family] = b.LiveAddresses(MeshedSet(family), family, "meshed pods of the node")
			if n.Former.InPods {
				planner.shared[family] = b.LiveAddresses(n.Former.SharedSet(family), family, "pods that are captured in their own namespaces, too")
			}
		}
		planner.capture()
		planner.answered()
		planner.inbound()
		planner.translations()
		planner.guard()
	})
}

// nodePlanner writes the plan. Its numbers hold for all generations.
type nodePlanner struct {
	NodeProxy
	NodeNumbers

	facts   interception.Facts
	builder *interception.Builder
	proxies []proxyNumbers // the proxy's first, then those of the others
	meshed  map[interception.Family]interception.SetRef
	shared  map[interception.Family]interception.SetRef // empty unless Former.InPods
	// in and out are the wires of all generations, and wires is the condition on both, which is
	// absent without any proxy.
	in, out interception.Interface
	wires   interception.Condition[interception.InterfaceSet]
}

// proxyNumbers are a proxy with the numbers of its generation.
type proxyNumbers struct {
	NodeProxy
	NodeNumbers
}

// wired returns the proxies that have wires: all but a first one that is zero.
func (p nodePlanner) wired() []proxyNumbers {
	if p.IsZero() {
		return p.proxies[1:]
	}
	return p.proxies
}

// isWired reports whether any proxy has wires.
func (p nodePlanner) isWired() bool { return len(p.wired()) > 0 }

// hooked restricts a hook to the families that the plan has rules for.
func (p nodePlanner) hooked(l4 interception.L4) interception.Match {
	return podPlanner{facts: p.facts}.hooked(l4)
}

// network adds the wires to a proxy, with their addresses and settings, and the routes through
// them.
func (p nodePlanner) network(to proxyNumbers) {
	for _, wire := range []struct {
		id string
		Wire
	}{{"wire.inbound", to.InboundWire}, {"wire.outbound", to.OutboundWire}} {
		base := to.wireID(wire.id)
		p.builder.Link(to.link(interception.RuleID(base), wire.Wire))
		for _, family := range to.families(p.facts) {
			p.builder.Address(interception.Address{
				ID: id(base, family), Device: wire.Node, Prefix: ofFamily(wire.NodeAddresses, family)[0], Why: "end of a wire to the proxy",
			})
		}
	}
	p.builder.Sysctl(looseSource(interception.RuleID(to.wireID("wire.sources")), to.OutboundWire.Node))
	if to.Way == WayVXLAN {
		remote := to.address(interception.FamilyOf(to.Node))
		p.builder.PolicyRule(direct(to.wireID("wire.direct"), remote, p.DirectPriority))
	}
	for _, family := range to.families(p.facts) {
		p.route(to.wireID("outbound"), family, to.Outbound, to.OutboundWire, whyToProxy)
		p.route(to.wireID("inbound"), family, to.Inbound, to.InboundWire, whyToProxy)
		p.route(to.wireID("reply"), family, to.Replies, to.OutboundWire, whyReplies)
	}
}

// The reasons for the routes and the rules that choose them.
const (
	whyToProxy = "captured connections go to the proxy"
	whyProxied = "what the proxy sends is not captured again"
	whyReplies = "replies go to the proxy that asked in the name of others"
)

// wireID returns the id of a part of a wire, which differs between generations.
func (p NodeProxy) wireID(base string) string {
	if p.Generation == 0 {
		return base
	}
	return fmt.Sprintf("%s.%d", base, p.Generation)
}

func (p nodePlanner) families() []interception.Family { return p.NodeProxy.families(p.facts) }

func (p proxyNumbers) link(id interception.RuleID, w Wire) interception.Link {
	if p.Way == WayVXLAN {
		return p.tunnel(id, w.Node, w, p.address(interception.FamilyOf(p.Node)), p.UDPPort)
	}
	return interception.Link{
		ID: id, Name: w.Node, Veth: &interception.Veth{Peer: w.Proxy, Namespace: p.Namespace}, MTU: cmp.Or(p.MTU, defaultMTU), Why: whyWire,
	}
}

// route sends the packets with a mark through a wire.
func (p nodePlanner) route(base string, family interception.Family, r MarkedRoute, w Wire, why string) {
	p.builder.Route(interception.Route{
		ID: id(base+".route", family), Destination: everywhere(family), Device: w.Node, Gateway: ofFamily(w.ProxyAddresses, family)[0].Addr(),
		Table: r.Table, Why: why,
	})
	p.builder.PolicyRule(r.rule(base, family, why))
}

// rule selects the table for the mark.
func (r MarkedRoute) rule(base string, family interception.Family, why string) interception.PolicyRule {
	return interception.PolicyRule{
		ID: id(base+".rule", family), Family: family, Mark: r.Mark, Table: r.Table, Priority: r.Priority, Why: why,
	}
}

// direct lets the packets of a tunnel itself, which have the marks of those within, use the main
// table.
func direct(base string, remote netip.Addr, priority uint32) interception.PolicyRule {
	return interception.PolicyRule{
		ID: interception.RuleID(base), Family: interception.FamilyOf(remote), Destination: netip.PrefixFrom(remote, remote.BitLen()),
		Priority: priority, Why: "a tunnel does not lead into itself",
	}
}

// looseSource lets packets come in by a wire whose source another interface leads to. IPv6 has no
// such setting. An interface's own setting prevails over the one for all if it is greater.
func looseSource(id interception.RuleID, device interception.Interface) interception.Sysctl {
	const loose = 2 // rp_filter of Documentation/networking/ip-sysctl.rst
	return interception.Sysctl{
		ID: id, Key: "ipv4/conf/" + string(device) + "/rp_filter", Value: loose, Why: "packets arrive by a wire with addresses of others",
	}
}
