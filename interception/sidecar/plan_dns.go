// SPDX-License-Identifier: Apache-2.0

package sidecar

import "github.com/meshcni/meshcni/interception"

// dnsPort is where resolvers listen (RFC 1035, section 4.2).
const dnsPort interception.Port = 53

// The zones of connection tracking that queries are tracked in: an application and the proxy that asks for it may use the same source
// address and port towards the same resolver.
const (
	proxyZone       uint16 = 1
	applicationZone uint16 = 2
)

// queries captures DNS, TCP and UDP.
func (p planner) queries(c natChain) {
	if !p.capturesDNS() || p.Outbound.ExcludePorts.Contains(dnsPort) {
		return
	}
	capture := interception.RedirectTo{Port: p.DNS.Port}
	p.eachServer(func(suffix interception.RuleID, servers interception.Condition[interception.PrefixSet]) {
		c.Do("dns.tcp"+suffix, interception.Match{Dst: servers, L4: interception.TCP().To(interception.Ports(dnsPort))}, capture,
			"queries go to the proxy", p.Sources[ParameterDNS]...)
		c.Do("dns.udp"+suffix, interception.Match{Dst: servers, L4: interception.UDP().To(interception.Ports(dnsPort))}, capture,
			"queries go to the proxy", p.Sources[ParameterDNS]...)
	})
}

// zones keeps the two legs of a query over UDP apart: from the application to the proxy, and from the proxy to the resolver.
func (p planner) zones() {
	if !p.capturesDNS() {
		return
	}
	from := p.Sources[ParameterDNS]
	query := interception.UDP().To(interception.Ports(dnsPort))
	out := p.builder.Raw("dns-output")
	out.Entry(interception.Output, interception.Match{Family: p.family(), L4: interception.UDP()}, "queries and answers over UDP")
	byProxy(p, out, "dns.zone.query.proxy", interception.Match{L4: query}, interception.RawAction(interception.SetZone{Zone: proxyZone}),
		"what the proxy asks")
	byProxy(p, out, "dns.zone.answer.proxy", interception.Match{L4: interception.UDP().From(interception.Ports(p.DNS.Port))},
		interception.RawAction(interception.SetZone{Zone: applicationZone}),
		"what the proxy answers")
	in := p.builder.Raw("dns-inbound")
	in.Entry(interception.Prerouting, interception.Match{Family: p.family(), L4: interception.UDP()}, "answers over UDP")
	p.eachServer(func(suffix interception.RuleID, servers interception.Condition[interception.PrefixSet]) {
		match := p.notProxy()
		match.Dst, match.L4 = servers, query
		out.Do("dns.zone.query"+suffix, match, interception.SetZone{Zone: applicationZone}, "what the application asks", from...)
		in.Do("dns.zone.answer"+suffix, interception.Match{Src: servers, L4: interception.UDP().From(interception.Ports(dnsPort))},
			interception.SetZone{Zone: proxyZone},
			"what a resolver answers the proxy", from...)
	})
}

// eachServer calls rule once when all resolvers are meant, else for the resolvers of each family.
func (p planner) eachServer(rule func(suffix interception.RuleID, servers interception.Condition[interception.PrefixSet])) {
	if p.DNS.Servers.IsEmpty() {
		rule("", interception.Condition[interception.PrefixSet]{})
		return
	}
	for _, family := range p.families() {
		if servers := p.DNS.Servers.Of(family); !servers.IsEmpty() {
			rule("."+interception.RuleID(family.String()), interception.Is(servers))
		}
	}
}
