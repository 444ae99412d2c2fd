// SPDX-License-Identifier: Apache-2.0

package sidecar

import "github.com/meshcni/meshcni/interception"

// lo matches the interface on which a pod reaches itself.
func lo() interception.Condition[interception.InterfaceSet] {
	return interception.Is(interception.Interfaces("lo"))
}

// outbound writes the nat rules for packets that leave the pod.
func (p planner) outbound() {
	captures := p.capturesOutbound() || p.capturesDNS()
	if !captures && !p.callsItself() || p.Outbound.ExcludePorts.IsAll() {
		return
	}
	c := p.builder.NAT("output")
	entry := interception.Match{Family: p.family(), L4: interception.TCP()}
	if p.capturesDNS() {
		entry.L4 = interception.L4{}
	}
	c.Entry(interception.Output, entry, "connections from the pod")
	p.excludedFirst(c)
	p.passthrough(c)
	if p.callsItself() && !p.tproxies() {
		p.selfCalls(c)
	} else if p.callsItself() { // mangle marks other calls, and Prerouting hands them to the proxy
		p.selfTests(c)
	}
	if !captures {
		return
	}
	p.bypasses(c)
	p.ownerGroups(c)
	if p.Outbound.Groups.Limited && p.Outbound.Groups.Include.IsEmpty() {
		return // no group is captured
	}
	p.queries(c)
	p.excludedPrefixes(c)
	p.captures(c)
}

// excludedFirst writes the exclusions that precede every other rule.
func (p planner) excludedFirst(c natChain) {
	if !p.Interfaces.Exclude.IsEmpty() {
		c.Do("outbound.exclude.interfaces", interception.Match{Out: interception.Is(p.Interfaces.Exclude)}, interception.Return{},
			"excluded interfaces", p.Sources[ParameterInterfacesExclude]...)
	}
	if p.Outbound.ExcludePorts.IsEmpty() {
		return
	}
	from := p.Sources[ParameterOutboundExcludePorts]
	c.Do("outbound.exclude.ports", interception.Match{L4: tcpTo(p.Outbound.ExcludePorts)}, interception.Return{},
		"excluded outbound ports", from...)
	if p.capturesDNS() {
		c.Do("outbound.exclude.ports.udp", interception.Match{L4: to(interception.UDP(), p.Outbound.ExcludePorts)}, interception.Return{},
			"excluded outbound ports", from...)
	}
}

func (p planner) passthrough(c natChain) {
	for _, family := range p.families() {
		if sources := p.Proxy.PassthroughSources.Of(family); !sources.IsEmpty() {
			c.Do(id("outbound.passthrough", family), interception.Match{Out: lo(), Src: interception.Is(sources)}, interception.Return{},
				"the proxy hands a connection to the application")
		}
	}
}

// selfCalls redirects what the proxy sends to the pod's own addresses to the inbound port.
func (p planner) selfCalls(c natChain) {
	l4 := p.callToItself()
	for _, family := range p.families() {
		m := p.notLoopback(family)
		m.Out, m.L4 = lo(), l4
		byProxy(p, c, id("outbound.self", family), m, interception.NATAction(interception.RedirectTo{Port: p.Proxy.InboundPort}),
			"the pod calls itself through the proxy")
	}
}

// selfTests redirects what the proxy sends to its passthrough addresses to the inbound port, in
// TPROXY mode. A validator that runs in place of the proxy tests the rules this way: without
// privileges it cannot open a transparent socket.
func (p planner) selfTests(c natChain) {
	l4 := p.callToItself()
	for _, family := range p.families() {
		addresses, loopback := p.Proxy.PassthroughSources.Of(family), p.Outbound.Loopback.Of(family)
		if addresses.IsEmpty() || addresses.Union(loopback).Len() < addresses.Len()+loopback.Len() {
			continue // loopback stays within the pod
		}
		m := interception.Match{Out: lo(), Dst: interception.Is(addresses), L4: l4}
		byProxy(p, c, id("outbound.test", family), m, interception.NATAction(interception.RedirectTo{Port: p.Proxy.InboundPort}),
			"a validator tries whether there are rules")
	}
}

// callToItself matches TCP to the ports on which the pod can call itself through the proxy.
func (p planner) callToItself() interception.L4 {
	var not interception.PortSet
	if p.Proxy.TunnelPort != 0 {
		not = interception.Ports(p.Proxy.TunnelPort)
	}
	if p.capturesDNS() {
		not = not.Union(interception.Ports(dnsPort))
	}
	if not.IsEmpty() {
		return interception.TCP()
	}
	return interception.TCP().NotTo(not)
}

// notLoopback matches a family's packets whose destination is not loopback.
func (p planner) notLoopback(family interception.Family) interception.Match {
	if loopback := p.Outbound.Loopback.Of(family); !loopback.IsEmpty() {
		return interception.Match{Dst: interception.Not(loopback)}
	}
	return interception.Match{Family: family}
}

// bypasses leaves alone local traffic and the proxy's own.
func (p planner) bypasses(c natChain) {
	if !p.Outbound.CaptureLocal {
		match := p.notProxy()
		match.Out = lo()
		if p.capturesDNS() {
			match.L4 = interception.TCP().NotTo(interception.Ports(dnsPort))
		}
		c.Do("outbound.local", match, interception.Return{}, "what the application sends within the pod stays there")
	}
	byProxy(p, c, "outbound.proxy", interception.Match{}, interception.NATAction(interception.Return{}),
		"connections of the proxy itself are never captured")
}

// notProxy matches packets of other users and groups than the proxy's.
func (p planner) notProxy() interception.Match {
	var match interception.Match
	if !p.Proxy.UIDs.IsEmpty() {
		match.UID = interception.Not(p.Proxy.UIDs)
	}
	if !p.Proxy.GIDs.IsEmpty() {
		match.GID = interception.Not(p.Proxy.GIDs)
	}
	return match
}

// byProxy writes a rule for the proxy's users and one for its groups.
func byProxy[A interception.Action](
	p planner, c *interception.ChainRef[A], base interception.RuleID, match interception.Match, action A, why string,
) {
	if byUser := match; !p.Proxy.UIDs.IsEmpty() {
		byUser.UID = interception.Is(p.Proxy.UIDs)
		c.Do(base+".uid", byUser, action, why, p.Sources[ParameterProxyUIDs]...)
	}
	if byGroup := match; !p.Proxy.GIDs.IsEmpty() {
		byGroup.GID = interception.Is(p.Proxy.GIDs)
		c.Do(base+".gid", byGroup, action, why, p.Sources[ParameterProxyGIDs]...)
	}
}

// ownerGroups leaves alone the groups that are not captured.
func (p planner) ownerGroups(c natChain) {
	groups := p.Outbound.Groups
	if groups.Limited {
		match := interception.Match{}
		if !groups.Include.IsEmpty() {
			match.GID = interception.Not(groups.Include)
		}
		c.Do("outbound.groups.include", match, interception.Return{}, "only these groups are captured", p.Sources[ParameterOutboundGroupsInclude]...)
	}
	if !groups.Exclude.IsEmpty() {
		c.Do("outbound.groups.exclude", interception.Match{GID: interception.Is(groups.Exclude)}, interception.Return{},
			"excluded groups", p.Sources[ParameterOutboundGroupsExclude]...)
	}
}

func (p planner) excludedPrefixes(c natChain) {
	for _, family := range p.families() {
		if loopback := p.Outbound.Loopback.Of(family); !loopback.IsEmpty() {
			c.Do(id("outbound.loopback", family), interception.Match{Dst: interception.Is(loopback)}, interception.Return{},
				"loopback stays within the pod")
		}
	}
	from := p.Sources[ParameterOutboundExclude]
	for _, family := range p.families() {
		if prefixes := p.Outbound.Exclude.Of(family); !covers(p.Outbound.Loopback, prefixes) {
			c.Do(id("outbound.exclude.prefixes", family), p.to(prefixes, excludedSet, from), interception.Return{}, "excluded destinations", from...)
		}
	}
}

func (p planner) captures(c natChain) {
	excluded := p.Outbound.Exclude.Union(p.Outbound.Loopback)
	if covers(excluded, interception.AllPrefixes().Of(p.family())) {
		return
	}
	capture := interception.RedirectTo{Port: p.Proxy.OutboundPort}
	if !covers(p.Outbound.ExcludePorts, p.Outbound.IncludePorts) {
		c.Do("outbound.capture.ports", interception.Match{L4: tcpTo(p.Outbound.IncludePorts)}, capture,
			"connections to these ports go to the proxy", p.Sources[ParameterOutboundIncludePorts]...)
	}
	from := p.Sources[ParameterOutboundInclude]
	if p.Outbound.Include.IsAll() {
		c.Do("outbound.capture", interception.Match{L4: interception.TCP()}, capture, "all other connections go to the proxy", from...)
		return
	}
	for _, family := range p.families() {
		if prefixes := p.Outbound.Include.Of(family); !covers(excluded, prefixes) {
			match := p.to(prefixes, includedSet, from)
			match.L4 = interception.TCP()
			c.Do(id("outbound.capture.prefixes", family), match, capture, "connections to these destinations go to the proxy", from...)
		}
	}
}
