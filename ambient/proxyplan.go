// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// ProxyPlan returns the plan for the network namespace of the proxy that [NodePlan] sends captured
// connections to. The proxy needs listeners with IP_TRANSPARENT (IPV6_TRANSPARENT) on
// NodeNumbers.OutboundPort, InboundPort and TunnelPort, and on DNSPort for NodeProxy.DNS.
//
// What comes by the wires is delivered to them, whatever its destination:
//
//  1. ICMP errors about connections, and answers to those that the proxy has opened: to their
//     sockets
//  2. other TCP by the inbound wire to NodeNumbers.TunnelPort: to TunnelPort
//  3. other TCP by the inbound wire: to InboundPort
//  4. TCP by the outbound wire: to OutboundPort
//  5. anything else: left alone
//
// TCP that the proxy sends with an address of others leaves by the outbound wire: the pods' network
// might refuse it. ICMP errors that say that the wire carries no packets of that size reach the
// proxy's sockets. All else uses the network of the proxy's pod.
//
// With FormerCapture.ProxyLink, connections that the proxy opened before the plan was applied do
// not change to the wire. The node looks up what comes by a wire in NodeNumbers.Zone, and these
// connections began in the default zone.
//
// For WayVeth, NodePlan makes the wires: apply it first. Facts describe the proxy's namespace.
// Without Facts.IPv6 and Facts.LoopbackIPv6 there is nothing for IPv6. The errors wrap [ErrNumbers]
// and [ErrNodeProxy], which the zero NodeProxy is.
func ProxyPlan(p NodeProxy, n NodeNumbers, f interception.Facts, owner interception.Owner) (*interception.Plan, error) {
	f.IPv6 = f.IPv6 && f.LoopbackIPv6 // the kernel refuses the route otherwise
	err := errors.Join(n.Validate(), p.Validate())
	if err == nil && len(p.families(f)) == 0 {
		err = fmt.Errorf("%w: of the families of its namespace it has no address among %v", ErrNodeProxy, p.Addresses)
	}
	if err != nil {
		return nil, fmt.Errorf("plan ambient proxy: %w", err)
	}
	return interception.Build(owner, func(b *interception.Builder) {
		planner := proxyPlanner{NodeProxy: p, NodeNumbers: n.Generation(p.Generation), facts: f, builder: b}
		planner.network()
		planner.deliver()
		planner.send()
	})
}

// proxyPlanner writes the plan.
type proxyPlanner struct {
	NodeProxy
	NodeNumbers

	facts   interception.Facts
	builder *interception.Builder
}

func (p proxyPlanner) families() []interception.Family { return p.NodeProxy.families(p.facts) }

// hooked restricts a hook to the families that the plan has rules for.
func (p proxyPlanner) hooked(l4 interception.L4) interception.Match {
	m := interception.Match{L4: l4}
	if of := p.families(); len(of) == 1 {
		m.Family = of[0]
	}
	return m
}

// network adds the ends of the wires, with addresses, routes and settings.
func (p proxyPlanner) network() {
	for _, wire := range []struct {
		id interception.RuleID
		Wire
	}{{"wire.inbound", p.InboundWire}, {"wire.outbound", p.OutboundWire}} {
		if p.Way == WayVXLAN {
			p.builder.Link(p.tunnel(wire.id, wire.Proxy, wire.Wire, p.Node, p.UDPPort))
		}
		for _, family := range p.families() {
			p.builder.Address(interception.Address{
				ID: id(string(wire.id), family), Device: wire.Proxy, Prefix: ofFamily(wire.ProxyAddresses, family)[0],
				Why: "end of a wire to the node",
			})
		}
		p.builder.Sysctl(looseSource(wire.id+".sources", wire.Proxy))
	}
	if p.Way == WayVXLAN {
		p.builder.PolicyRule(direct("wire.direct", p.Node, p.DirectPriority))
	}
	const whyDelivered, whySent = "packets with addresses of others are for the proxy", "what has an address of others leaves by the wire"
	for _, family := range p.families() {
		p.builder.Route(interception.Route{
			ID: id("delivered.route", family), Type: interception.RouteLocal, Destination: everywhere(family), Device: "lo",
			Table: p.Delivered.Table, Why: whyDelivered,
		})
		p.builder.PolicyRule(p.Delivered.rule("delivered", family, whyDelivered))
		p.builder.Route(interception.Route{
			ID: id("transparent.route", family), Destination: everywhere(family), Device: p.OutboundWire.Proxy,
			Gateway: ofFamily(p.OutboundWire.NodeAddresses, family)[0].Addr(), Table: p.Transparent.Table, Why: whySent,
		})
		p.builder.PolicyRule(p.Transparent.rule("transparent", family, whySent))
	}
}

// deliver writes the rules about what comes by the wires.
func (p proxyPlanner) deliver() {
	c := p.builder.Mangle("deliver")
	in := interception.Is(interception.Interfaces(p.InboundWire.Proxy))
	out := interception.Is(interception.Interfaces(p.OutboundWire.Proxy))
	c.Entry(interception.Prerouting, p.hooked(interception.L4{}), "what comes by the wires")
	c.Do("errors", interception.Match{In: out, State: interception.Is(interception.StateRelated)}, interception.SetMark{Mark: p.Delivered.Mark},
		"errors about connections of the proxy are for the proxy")
	if p.Former.ProxyLink != "" {
		both := interception.Is(interception.Interfaces(p.InboundWire.Proxy, p.OutboundWire.Proxy))
		c.Do("delivered.remember", interception.Match{In: both, L4: interception.TCP()}, interception.SetConnMark{Mark: p.Transparent.Mark},
			"what comes by a wire is answered by the wire")
	}
	to := func(port interception.Port) interception.TProxyTo {
		return interception.TProxyTo{Port: port, Mark: p.Delivered.Mark}
	}
	c.Do("inbound.tunnel", interception.Match{In: in, L4: interception.TCP().To(interception.Ports(p.TunnelPort))}, to(p.TunnelPort),
		"connections of other proxies")
	c.Do("inbound.capture", interception.Match{In: in, L4: interception.TCP()}, to(p.InboundPort), "connections to meshed pods")
	c.Do("outbound.capture", interception.Match{In: out, L4: interception.TCP()}, to(p.OutboundPort), "connections of meshed pods")
}

// send writes the rules about what the proxy sends. A route by mark is chosen after the kernel has
// sized a packet for another, so the kernel reports one that does not fit to the packet's source:
// the socket must learn of it, although the address is of others.
func (p proxyPlanner) send() {
	c := p.builder.Mangle("send")
	c.Entry(interception.Output, p.hooked(interception.L4{}), "what the proxy sends")
	c.Do("send.errors", interception.Match{State: interception.Is(interception.StateRelated), ConnMark: interception.Is(p.Transparent.Mark)},
		interception.SetMark{Mark: p.Delivered.Mark}, "errors about what leaves by the wire are for the proxy")
	for _, family := range p.families() {
		c.Do(id("send.own", family), interception.Match{Src: interception.Is(p.own(family))}, interception.Return{}, "addresses of the proxy itself")
	}
	remember, transparent := interception.Match{L4: interception.TCP()}, interception.Match{L4: interception.TCP()}
	if p.Former.ProxyLink != "" { // older connections are not to be remembered
		remember.L4, transparent.ConnMark = opening(), interception.Is(p.Transparent.Mark)
	}
	c.Do("send.remember", remember, interception.SetConnMark{Mark: p.Transparent.Mark}, "what has an address of others is known by its errors")
	c.Do("send.transparent", transparent, interception.SetMark{Mark: p.Transparent.Mark}, "what has an address of others leaves by the wire")
}

// own returns the addresses of a family that the namespace has.
func (p proxyPlanner) own(family interception.Family) interception.PrefixSet {
	own := []netip.Prefix{netip.PrefixFrom(p.address(family), p.address(family).BitLen())}
	for _, wire := range []Wire{p.InboundWire, p.OutboundWire} {
		end := ofFamily(wire.ProxyAddresses, family)[0].Addr()
		own = append(own, netip.PrefixFrom(end, end.BitLen()))
	}
	if family == interception.IPv4 {
		own = append(own, netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8))
	} else {
		own = append(own, netip.PrefixFrom(netip.IPv6Loopback(), 128), netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfe, 0x80}), 10))
	}
	return interception.Prefixes(own...)
}
