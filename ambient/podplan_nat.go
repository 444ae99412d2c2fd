// SPDX-License-Identifier: Apache-2.0

package ambient

import "github.com/meshcni/meshcni/interception"

// inbound writes the nat rules for connections that reach the pod.
func (p podPlanner) inbound() {
	if p.BypassInbound && p.Reroute.IsEmpty() {
		return
	}
	c := p.builder.NAT("inbound")
	c.Entry(interception.Prerouting, p.hooked(interception.TCP()), "connections to the pod")
	p.rerouted(c)
	if p.BypassInbound {
		return
	}
	if !p.Exclude.IsEmpty() {
		c.Do("inbound.exclude.interfaces", interception.Match{In: interception.Is(p.Exclude)}, interception.Return{},
			"excluded interfaces", p.Sources[ParameterExcludeInterfaces]...)
	}
	for _, family := range p.families() {
		if addresses := p.probes(family); !addresses.IsEmpty() {
			c.Do(id("inbound.probe", family), interception.Match{Src: interception.Is(addresses), L4: interception.TCP()}, interception.Return{},
				"probes of the node reach the application")
		}
	}
	c.Do("inbound.proxy", interception.Match{Mark: interception.Is(p.ProxyMark)}, interception.Return{},
		"connections of the proxy itself are never captured")
	c.Do("inbound.tunnel", interception.Match{L4: interception.TCP().To(interception.Ports(p.TunnelPort))}, interception.Return{},
		"tunnelled connections are for the proxy already")
	if !p.Inbound.Exclude.IsEmpty() {
		c.Do("inbound.exclude.ports", interception.Match{L4: toPorts(p.Inbound.Exclude)}, interception.Return{},
			"excluded inbound ports", p.Sources[ParameterInboundExclude]...)
	}
	if p.Inbound.Include.IsEmpty() {
		return
	}
	for _, family := range p.families() {
		c.Do(id("inbound.capture", family), interception.Match{Dst: interception.Not(loopback(family)), L4: toPorts(p.Inbound.Include)},
			interception.RedirectTo{Port: p.InboundPort}, "inbound connections go to the proxy", p.Sources[ParameterInboundInclude]...)
	}
}

// rerouted treats connections of virtual machines in the pod as outbound, never as inbound.
func (p podPlanner) rerouted(c natChain) {
	if p.Reroute.IsEmpty() {
		return
	}
	by := interception.Is(p.Reroute)
	p.excludedPorts(c, "reroute.exclude.ports", interception.Match{In: by})
	p.destinations(c, "reroute", interception.Match{In: by})
	if p.Destinations.IsAll() {
		return // and so no other rule decides
	}
	c.Do("reroute.else", interception.Match{In: by}, interception.Return{}, "nothing else of virtual machines is captured",
		p.Sources[ParameterReroute]...)
}

// outbound writes the nat rules for what leaves the pod.
func (p podPlanner) outbound() {
	c := p.builder.NAT("output")
	entry := p.hooked(interception.TCP())
	if p.DNS {
		entry.L4 = interception.L4{}
	}
	c.Entry(interception.Output, entry, "connections from the pod")
	for _, family := range p.families() {
		if addresses := p.probes(family); !addresses.IsEmpty() {
			c.Do(id("outbound.probe", family), interception.Match{Dst: interception.Is(addresses), L4: interception.TCP()}, interception.Return{},
				"answers to probes of the node")
		}
	}
	if !p.Exclude.IsEmpty() {
		c.Do("outbound.exclude.interfaces", interception.Match{Out: interception.Is(p.Exclude)}, interception.Return{},
			"excluded interfaces", p.Sources[ParameterExcludeInterfaces]...)
	}
	p.excludedPorts(c, "outbound.exclude.ports", interception.Match{})
	p.queries(c)
	c.Do("outbound.reply", interception.Match{L4: interception.TCP(), Mark: interception.Is(p.ReplyMark)}, interception.Return{},
		"replies to the proxy")
	lo := interception.Is(interception.Interfaces("lo"))
	for _, family := range p.families() {
		c.Do(id("outbound.self", family), interception.Match{Out: lo, Dst: interception.Not(loopback(family))}, interception.Return{},
			"the pod calls itself")
	}
	c.Do("outbound.proxy", interception.Match{Mark: interception.Is(p.ProxyMark)}, interception.Return{},
		"connections of the proxy itself are never captured")
	for _, family := range p.families() {
		c.Do(id("outbound.loopback", family), interception.Match{Dst: interception.Is(loopback(family))}, interception.Return{},
			"what stays within the pod")
	}
	p.destinations(c, "outbound", interception.Match{})
}

// excludedPorts leaves connections to the excluded outbound ports alone.
func (p podPlanner) excludedPorts(c natChain, id interception.RuleID, match interception.Match) {
	if !p.Outbound.Exclude.IsEmpty() {
		match.L4 = toPorts(p.Outbound.Exclude)
		c.Do(id, match, interception.Return{}, "excluded outbound ports", p.Sources[ParameterOutboundExcludePorts]...)
	}
}

// queries captures DNS. Queries over UDP to a resolver on loopback leave by lo and stay.
func (p podPlanner) queries(c natChain) {
	if !p.DNS {
		return
	}
	capture := interception.RedirectTo{Port: p.DNSPort}
	query := interception.UDP().To(interception.Ports(dnsPort))
	c.Do("dns.udp", interception.Match{
		Out: interception.Not(interception.Interfaces("lo")), L4: query, Mark: interception.Not(p.ProxyMark),
	}, capture, "queries go to the proxy", p.Sources[ParameterDNS]...)
	for _, family := range p.families() {
		c.Do(id("dns.tcp", family), interception.Match{
			Dst: interception.Not(loopback(family)), L4: interception.TCP().To(interception.Ports(dnsPort)), Mark: interception.Not(p.ProxyMark),
		}, capture, "queries go to the proxy", p.Sources[ParameterDNS]...)
	}
}

// destinations captures by destination, after the exclusions.
func (p podPlanner) destinations(c natChain, base string, match interception.Match) {
	capture := interception.RedirectTo{Port: p.OutboundPort}
	const why = "other connections go to the proxy"
	for _, family := range p.families() {
		if excluded := p.ExcludeDestinations.Of(family); !excluded.IsEmpty() {
			c.Do(id(base+".exclude.prefixes", family), p.to(match, excluded, excludedSet), interception.Return{},
				"excluded destinations", p.Sources[ParameterOutboundExclude]...)
		}
	}
	if !p.Outbound.Include.IsEmpty() {
		ports := match
		ports.L4 = toPorts(p.Outbound.Include)
		c.Do(interception.RuleID(base+".capture.ports"), ports, capture, why, p.Sources[ParameterOutboundIncludePorts]...)
	}
	if p.Destinations.IsAll() {
		match.L4 = interception.TCP()
		c.Do(interception.RuleID(base+".capture"), match, capture, why, p.Sources[ParameterOutboundInclude]...)
		return
	}
	for _, family := range p.families() {
		if included := p.Destinations.Of(family); !included.IsEmpty() {
			c.Do(id(base+".capture", family), p.to(match, included, includedSet), capture, why, p.Sources[ParameterOutboundInclude]...)
		}
	}
}

// The names of the sets of many prefixes, without the family.
const (
	includedSet interception.SetName = "outbound-include"
	excludedSet interception.SetName = "outbound-exclude"
)

// setThreshold is the number of prefixes from which on a rule refers to a named set. Shorter
// literal lists read better and cost the same.
const setThreshold = 8

// to restricts a match to TCP to one family's prefixes: all by the family, a few literally, many by
// a set.
func (p podPlanner) to(match interception.Match, prefixes interception.PrefixSet, base interception.SetName) interception.Match {
	family := prefixes.Family()
	match.L4 = interception.TCP()
	switch {
	case prefixes.Equal(interception.AllPrefixes().Of(family)):
		match.Family = family
		return match
	case prefixes.Len() < setThreshold:
		match.Dst = interception.Is(prefixes)
		return match
	}
	name := base + "-" + interception.SetName(family.String())
	set, found := p.sets[name]
	if !found {
		why, from := "included destinations", p.Sources[ParameterOutboundInclude]
		if base == excludedSet {
			why, from = "excluded destinations", p.Sources[ParameterOutboundExclude]
		}
		set = p.builder.Set(name, prefixes, why, from...)
		p.sets[name] = set
	}
	match.DstSet = interception.Is(set)
	return match
}

// toPorts matches TCP to ports.
func toPorts(ports interception.PortSet) interception.L4 {
	if ports.IsAll() {
		return interception.TCP()
	}
	return interception.TCP().To(ports)
}
