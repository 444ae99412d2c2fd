// SPDX-License-Identifier: Apache-2.0

package sidecar

import "github.com/meshcni/meshcni/interception"

// inbound is about what comes by an interface, as far as nat decides it.
func (p planner) inbound() {
	redirects := p.Mode == ModeRedirect && p.includesInbound()
	if !redirects && !p.reroutes() {
		return
	}
	c := p.builder.NAT("inbound")
	c.Entry(interception.Prerouting, interception.Match{Family: p.family(), L4: interception.TCP()}, "connections to the pod")
	if p.reroutes() {
		p.rerouted(c)
	}
	if !redirects {
		return
	}
	if !p.Interfaces.Exclude.IsEmpty() {
		c.Do("inbound.exclude.interfaces", interception.Match{In: interception.Is(p.Interfaces.Exclude)}, interception.Return{},
			"excluded interfaces", p.Sources[ParameterInterfacesExclude]...)
	}
	if p.Proxy.TunnelPort != 0 {
		c.Do("inbound.tunnel", interception.Match{L4: interception.TCP().To(interception.Ports(p.Proxy.TunnelPort))}, interception.Return{},
			"tunnelled connections are for the proxy already")
	}
	if !p.Inbound.Exclude.IsEmpty() {
		c.Do("inbound.exclude.ports", interception.Match{L4: tcpTo(p.Inbound.Exclude)}, interception.Return{},
			"excluded inbound ports", p.Sources[ParameterInboundExclude]...)
	}
	c.Do("inbound.capture", interception.Match{L4: tcpTo(p.Inbound.Include)}, interception.RedirectTo{Port: p.Proxy.InboundPort},
		"inbound connections go to the proxy", p.Sources[ParameterInboundInclude]...)
}

// includesInbound reports whether a port is included and not excluded.
func (p planner) includesInbound() bool {
	return !covers(p.Inbound.Exclude, p.Inbound.Include)
}

// rerouted treats what comes from virtual machines in the pod as outbound: an interface of theirs never brings anything inbound.
func (p planner) rerouted(c natChain) {
	by := interception.Match{In: interception.Is(p.Interfaces.Reroute)}
	from := p.Sources[ParameterInterfacesReroute]
	capture := interception.RedirectTo{Port: p.Proxy.OutboundPort}
	const why = "connections of virtual machines go to the proxy"
	if p.Outbound.Include.IsAll() {
		by.L4 = interception.TCP()
		c.Do("reroute.capture", by, capture, why, from...)
	} else {
		for _, family := range p.families() {
			if prefixes := p.Outbound.Include.Of(family); !prefixes.IsEmpty() {
				match := p.to(prefixes, includedSet, p.Sources[ParameterOutboundInclude])
				match.In, match.L4 = by.In, interception.TCP()
				c.Do(id("reroute.capture", family), match, capture, why, from...)
			}
		}
	}
	if p.Outbound.Include.IsAll() {
		return // there is nothing else
	}
	c.Do("reroute.else", interception.Match{In: by.In}, interception.Return{}, "nothing else of virtual machines is captured", from...)
}
