// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// PodPlan returns the plan for the network namespace of a pod that the node's proxy serves. It is
// pure: the same input gives the same plan. For a pod that is running already, apply
// [interception.Plan.Sparing] of it.
//
// For a TCP connection that reaches the pod, the first matching line decides:
//
//  1. on a rerouted interface: as outbound lines 3, 8 and 9 say, else left alone
//  2. on an excluded interface: left alone
//  3. from a probe address: left alone
//  4. from the proxy, to loopback, or to the tunnel port: left alone
//  5. to an excluded inbound port: left alone
//  6. to an included inbound port: to Numbers.InboundPort
//  7. anything else: left alone
//
// Lines 2 to 6 are left out with BypassInbound.
//
// For traffic from the pod (TCP, and UDP for DNS), likewise:
//
//  1. TCP to a probe address, which is the answer of a probe: left alone
//  2. on an excluded interface: left alone
//  3. to an excluded outbound port: left alone
//  4. to port 53, with DNS, not by the proxy, over UDP on other interfaces than lo or over TCP to
//     other addresses than loopback: to Numbers.DNSPort
//  5. with the replies' mark: left alone
//  6. over lo to an address that is not loopback (the pod calls itself): left alone
//  7. by the proxy, or to loopback: left alone
//  8. to an excluded prefix: left alone
//  9. to an included port or prefix: to Numbers.OutboundPort
//  10. anything else: left alone
//
// The proxy connects to the application from its client's address. Such a connection is marked as
// it passes loopback, and its replies are delivered in the pod (Numbers.Table) rather than sent to
// the client. Nothing else is captured or changed: UDP other than DNS passes.
//
// The families are treated alike, each with its own addresses. Without Facts.IPv6 the rules apply
// to IPv4 only; without Facts.LoopbackIPv6 the replies of IPv6 are not delivered in the pod, and
// captured connections to the pod over IPv6 fail. A Numbers that contradicts itself is an error
// that wraps [ErrNumbers].
func PodPlan(o Overrides, n Numbers, f interception.Facts, owner interception.Owner) (*interception.Plan, error) {
	if err := n.Validate(); err != nil {
		return nil, fmt.Errorf("plan ambient pod: %w", err)
	}
	for _, set := range []interception.InterfaceSet{o.Reroute, o.Exclude} {
		if set.Contains("lo") {
			return nil, errors.New("plan ambient pod: lo is rerouted or excluded, which would cut the proxy off: name other interfaces")
		}
	}
	o.DNS = o.DNS && !o.Outbound.Exclude.Contains(dnsPort)
	return interception.Build(owner, func(b *interception.Builder) {
		p := podPlanner{Overrides: o, Numbers: n, facts: f, builder: b, sets: map[interception.SetName]interception.SetRef{}}
		p.replies()
		p.zones()
		p.inbound()
		p.outbound()
	})
}

// podPlanner writes the plan.
type podPlanner struct {
	Overrides
	Numbers

	facts   interception.Facts
	builder *interception.Builder
	sets    map[interception.SetName]interception.SetRef // the sets that the plan has
}

type natChain = *interception.ChainRef[interception.NATAction]

func (p podPlanner) families() []interception.Family { return families(p.facts) }

// families returns the families that a plan has rules for.
func families(f interception.Facts) []interception.Family {
	if f.IPv6 {
		return []interception.Family{interception.IPv4, interception.IPv6}
	}
	return []interception.Family{interception.IPv4}
}

// hooked restricts a hook to the families that the plan has rules for.
func (p podPlanner) hooked(l4 interception.L4) interception.Match {
	if p.facts.IPv6 {
		return interception.Match{L4: l4}
	}
	return interception.Match{Family: interception.IPv4, L4: l4}
}

func id(base string, family interception.Family) interception.RuleID {
	return interception.RuleID(base + "." + family.String())
}

// loopback returns the loopback address of a family.
func loopback(family interception.Family) interception.PrefixSet {
	address := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if family == interception.IPv6 {
		address = netip.IPv6Loopback()
	}
	return interception.Prefixes(netip.PrefixFrom(address, address.BitLen()))
}

// everywhere returns the prefix of all addresses of a family.
func everywhere(family interception.Family) netip.Prefix {
	if family == interception.IPv6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// replies delivers what the application answers to connections that the proxy opened in its
// client's name.
func (p podPlanner) replies() {
	in := p.builder.Mangle("reply-inbound")
	in.Entry(interception.Prerouting, p.hooked(interception.L4{}), "connections that the proxy opens")
	in.Do("replies.mark", interception.Match{Mark: interception.Is(p.ProxyMark)}, interception.SetConnMark{Mark: p.ReplyMark},
		"the proxy may use the address of its client")
	out := p.builder.Mangle("reply-output")
	out.Entry(interception.Output, p.hooked(interception.L4{}), "replies to the proxy")
	out.Do("replies.restore", interception.Match{ConnMark: interception.Is(p.ReplyMark)}, interception.RestoreMark{},
		"replies go back to the proxy, not to its client")
	for _, family := range p.families() {
		if family == interception.IPv6 && !p.facts.LoopbackIPv6 {
			continue // the kernel refuses the route
		}
		p.builder.Route(interception.Route{
			ID: id("replies.route", family), Type: interception.RouteLocal, Destination: everywhere(family), Device: "lo", Table: p.Table,
			Why: "replies to the proxy are delivered in the pod",
		})
		p.builder.PolicyRule(interception.PolicyRule{
			ID: id("replies.rule", family), Family: family, Mark: p.ReplyMark, Table: p.Table, Priority: p.Priority,
			Why: "replies to the proxy are delivered in the pod",
		})
	}
}

// dnsPort is the port of resolvers (RFC 1035, section 4.2).
const dnsPort interception.Port = 53

// zones separates the proxy's queries from those of the application, which may have the same
// addresses and ports.
func (p podPlanner) zones() {
	if !p.DNS {
		return
	}
	from := p.Sources[ParameterDNS]
	out := p.builder.Raw("dns-output")
	out.Entry(interception.Output, p.hooked(interception.UDP()), "queries over UDP")
	out.Do("dns.zone.query", interception.Match{L4: interception.UDP().To(interception.Ports(dnsPort)), Mark: interception.Is(p.ProxyMark)},
		interception.SetZone{Zone: p.Zone}, "what the proxy asks", from...)
	in := p.builder.Raw("dns-inbound")
	in.Entry(interception.Prerouting, p.hooked(interception.UDP()), "answers over UDP")
	in.Do("dns.zone.answer", interception.Match{L4: interception.UDP().From(interception.Ports(dnsPort)), Mark: interception.Not(p.ProxyMark)},
		interception.SetZone{Zone: p.Zone}, "what a resolver answers the proxy", from...)
}
