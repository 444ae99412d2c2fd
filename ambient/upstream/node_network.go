// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// mainPriority is the priority of the kernel's own rule for the main routing table.
const mainPriority = 32766

// NetworkPlan returns what the agent has in the node's namespace besides its rules, as a plan: the
// GENEVE tunnels to the proxy with their addresses, and the routes and policy rules that lead into
// them. It lacks the routes that the agent adds for each pod to table 100. [ambient.NodePlan] has
// no GENEVE tunnels: this plan is for a node on which the agent's network stands. A kernel without
// GENEVE refuses it, and the error wraps [interception.ErrUnsupported].
func (u NodeRules) NetworkPlan(owner interception.Owner) (*interception.Plan, error) {
	if err := u.validate(); err != nil {
		return nil, fmt.Errorf("plan the network of upstream's agent: %w", err)
	}
	const outbound, replies, inbound = 101, 102, 100
	return interception.Build(owner, func(b *interception.Builder) {
		for i, name := range []interception.Interface{"istioin", "istioout"} {
			end := byte(126 + i)
			b.Link(interception.Link{
				ID: interception.RuleID(name), Name: name, Why: "tunnel to the proxy",
				Geneve: &interception.Geneve{VNI: 1000 + uint32(i), Remote: u.Proxy, Port: u.UDPPort},
			})
			b.Address(interception.Address{
				ID: interception.RuleID(name) + ".address", Device: name, Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, end, 1}), 30),
				Why: "end of a tunnel to the proxy",
			})
		}
		u.proxyRoute(b, "r1", outbound)
		u.proxyRoute(b, "r3", replies)
		u.proxyRoute(b, "r5", inbound)
		b.Route(interception.Route{
			ID: "r2", Destination: everywhere(interception.IPv4), Gateway: netip.AddrFrom4([4]byte{192, 168, 127, 2}), Device: "istioout",
			Table: outbound, Why: "captured packets go to the proxy",
		})
		b.Route(interception.Route{
			ID: "r4", Destination: everywhere(interception.IPv4), Gateway: u.Proxy, Device: u.ProxyLink, OnLink: true, Table: replies,
			Why: "replies go to the proxy",
		})
		b.PolicyRule(interception.PolicyRule{
			ID: "p100", Family: interception.IPv4, Mark: equal(upstreamSkipped), Goto: mainPriority, Priority: 100, Why: "left alone",
		})
		b.PolicyRule(interception.PolicyRule{
			ID: "p101", Family: interception.IPv4, Mark: equal(upstreamOutbound), Table: outbound, Priority: 101, Why: "captured packets",
		})
		b.PolicyRule(interception.PolicyRule{
			ID: "p102", Family: interception.IPv4, Mark: equal(upstreamReply), Table: replies, Priority: 102, Why: "replies to the proxy",
		})
		b.PolicyRule(interception.PolicyRule{
			ID: "p103", Family: interception.IPv4, Any: true, Table: inbound, Priority: 103, Why: "packets to meshed pods",
		})
	})
}

// proxyRoute adds the route by which a table reaches the proxy, as a tunnel's own packets have its
// marks.
func (u NodeRules) proxyRoute(b *interception.Builder, id interception.RuleID, table interception.RoutingTable) {
	b.Route(interception.Route{
		ID: id, Destination: netip.PrefixFrom(u.Proxy, 32), Device: u.ProxyLink, Table: table, Why: "the proxy itself",
	})
}
