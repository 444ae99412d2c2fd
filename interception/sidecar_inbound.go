// SPDX-License-Identifier: Apache-2.0

package interception

// inbound is about what comes by an interface, as far as nat decides it.
func (s sidecar) inbound() {
	redirects := s.Mode == ModeRedirect && s.includesInbound()
	if !redirects && !s.reroutes() {
		return
	}
	c := s.builder.NAT("inbound")
	c.Entry(Prerouting, Match{Family: s.family(), L4: TCP()}, "connections to the pod")
	if s.Existing == ExistingSpare {
		c.Do("inbound.spare", older(), Return{}, whySpared)
	}
	if s.reroutes() {
		s.rerouted(c)
	}
	if !redirects {
		return
	}
	if !s.Interfaces.Exclude.IsEmpty() {
		c.Do("inbound.exclude.interfaces", Match{In: Is(s.Interfaces.Exclude)}, Return{},
			"excluded interfaces", s.Sources[ParameterInterfacesExclude]...)
	}
	if s.Proxy.TunnelPort != 0 {
		c.Do("inbound.tunnel", Match{L4: TCP().To(Ports(s.Proxy.TunnelPort))}, Return{},
			"tunnelled connections are for the proxy already")
	}
	if !s.Inbound.Exclude.IsEmpty() {
		c.Do("inbound.exclude.ports", Match{L4: tcpTo(s.Inbound.Exclude)}, Return{},
			"excluded inbound ports", s.Sources[ParameterInboundExclude]...)
	}
	c.Do("inbound.capture", Match{L4: tcpTo(s.Inbound.Include)}, RedirectTo{s.Proxy.InboundPort},
		"inbound connections go to the proxy", s.Sources[ParameterInboundInclude]...)
}

// includesInbound reports whether a port is included and not excluded.
func (s sidecar) includesInbound() bool {
	return !covers(s.Inbound.Exclude, s.Inbound.Include)
}

// rerouted treats what comes from virtual machines in the pod as outbound: an interface of theirs never brings anything inbound.
func (s sidecar) rerouted(c natChain) {
	by := Match{In: Is(s.Interfaces.Reroute)}
	from := s.Sources[ParameterInterfacesReroute]
	capture := RedirectTo{s.Proxy.OutboundPort}
	const why = "connections of virtual machines go to the proxy"
	if s.Outbound.Include.IsAll() {
		by.L4 = TCP()
		c.Do("reroute.capture", by, capture, why, from...)
	} else {
		for _, family := range s.families() {
			if prefixes := s.Outbound.Include.Of(family); !prefixes.IsEmpty() {
				match := s.to(prefixes, includedSet, s.Sources[ParameterOutboundInclude])
				match.In, match.L4 = by.In, TCP()
				c.Do(id("reroute.capture", family), match, capture, why, from...)
			}
		}
	}
	if s.Outbound.Include.IsAll() {
		return // there is nothing else
	}
	c.Do("reroute.else", Match{In: by.In}, Return{}, "nothing else of virtual machines is captured", from...)
}
