// SPDX-License-Identifier: Apache-2.0

package interception

// dnsPort is where resolvers listen (RFC 1035, section 4.2).
const dnsPort Port = 53

// The zones of connection tracking that queries are tracked in: an application and the proxy that asks for it may use the same source
// address and port towards the same resolver.
const (
	proxyZone       uint16 = 1
	applicationZone uint16 = 2
)

// queries captures DNS, TCP and UDP.
func (s sidecar) queries(c natChain) {
	if !s.capturesDNS() || s.Outbound.ExcludePorts.Contains(dnsPort) {
		return
	}
	capture := RedirectTo{s.DNS.Port}
	s.eachServer(func(suffix RuleID, servers Condition[PrefixSet]) {
		c.Do("dns.tcp"+suffix, Match{Dst: servers, L4: TCP().To(Ports(dnsPort))}, capture, "queries go to the proxy", s.Sources[ParameterDNS]...)
		c.Do("dns.udp"+suffix, Match{Dst: servers, L4: UDP().To(Ports(dnsPort))}, capture, "queries go to the proxy", s.Sources[ParameterDNS]...)
	})
}

// zones keeps the two legs of a query over UDP apart: from the application to the proxy, and from the proxy to the resolver.
func (s sidecar) zones() {
	if !s.capturesDNS() {
		return
	}
	from := s.Sources[ParameterDNS]
	query := UDP().To(Ports(dnsPort))
	out := s.builder.Raw("dns-output")
	out.Entry(Output, Match{Family: s.family(), L4: UDP()}, "queries and answers over UDP")
	byProxy(s, out, "dns.zone.query.proxy", Match{L4: query}, RawAction(SetZone{proxyZone}), "what the proxy asks")
	byProxy(s, out, "dns.zone.answer.proxy", Match{L4: UDP().From(Ports(s.DNS.Port))}, RawAction(SetZone{applicationZone}),
		"what the proxy answers")
	in := s.builder.Raw("dns-inbound")
	in.Entry(Prerouting, Match{Family: s.family(), L4: UDP()}, "answers over UDP")
	s.eachServer(func(suffix RuleID, servers Condition[PrefixSet]) {
		match := s.notProxy()
		match.Dst, match.L4 = servers, query
		out.Do("dns.zone.query"+suffix, match, SetZone{applicationZone}, "what the application asks", from...)
		in.Do("dns.zone.answer"+suffix, Match{Src: servers, L4: UDP().From(Ports(dnsPort))}, SetZone{proxyZone},
			"what a resolver answers the proxy", from...)
	})
}

// eachServer calls rule once when all resolvers are meant, else for the resolvers of each family.
func (s sidecar) eachServer(rule func(suffix RuleID, servers Condition[PrefixSet])) {
	if s.DNS.Servers.IsEmpty() {
		rule("", Condition[PrefixSet]{})
		return
	}
	for _, family := range s.families() {
		if servers := s.DNS.Servers.Of(family); !servers.IsEmpty() {
			rule("."+RuleID(family.String()), Is(servers))
		}
	}
}
