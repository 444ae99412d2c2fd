// SPDX-License-Identifier: Apache-2.0

package interception

// lo is the interface that a pod reaches itself by.
func lo() Condition[InterfaceSet] { return Is(Interfaces("lo")) }

// outbound is about what leaves the pod.
func (s sidecar) outbound() {
	captures := s.capturesOutbound() || s.capturesDNS()
	if !captures && !s.callsItself() || s.Outbound.ExcludePorts.IsAll() {
		return
	}
	c := s.builder.NAT("output")
	entry := Match{Family: s.family(), L4: TCP()}
	if s.capturesDNS() {
		entry.L4 = L4{}
	}
	c.Entry(Output, entry, "connections from the pod")
	s.excludedFirst(c)
	s.passthrough(c)
	if s.callsItself() && !s.tproxies() {
		s.selfCalls(c)
	} else if s.callsItself() { // mangle marks the others, and Prerouting hands them over
		s.selfTests(c)
	}
	if !captures {
		return
	}
	s.bypasses(c)
	s.ownerGroups(c)
	if s.Outbound.Groups.Limited && s.Outbound.Groups.Include.IsEmpty() {
		return // nobody is captured
	}
	s.queries(c)
	s.excludedPrefixes(c)
	s.captures(c)
}

// excludedFirst is what nothing else can include.
func (s sidecar) excludedFirst(c natChain) {
	if s.Existing == ExistingSpare {
		c.Do("outbound.spare", older(), Return{}, whySpared)
	}
	if !s.Interfaces.Exclude.IsEmpty() {
		c.Do("outbound.exclude.interfaces", Match{Out: Is(s.Interfaces.Exclude)}, Return{},
			"excluded interfaces", s.Sources[ParameterInterfacesExclude]...)
	}
	if s.Outbound.ExcludePorts.IsEmpty() {
		return
	}
	from := s.Sources[ParameterOutboundExcludePorts]
	c.Do("outbound.exclude.ports", Match{L4: tcpTo(s.Outbound.ExcludePorts)}, Return{}, "excluded outbound ports", from...)
	if s.capturesDNS() {
		c.Do("outbound.exclude.ports.udp", Match{L4: to(UDP(), s.Outbound.ExcludePorts)}, Return{}, "excluded outbound ports", from...)
	}
}

func (s sidecar) passthrough(c natChain) {
	for _, family := range s.families() {
		if sources := s.Proxy.PassthroughSources.Of(family); !sources.IsEmpty() {
			c.Do(id("outbound.passthrough", family), Match{Out: lo(), Src: Is(sources)}, Return{},
				"the proxy hands a connection to the application")
		}
	}
}

// selfCalls sends what the proxy sends to the pod's own address to the inbound side.
func (s sidecar) selfCalls(c natChain) {
	l4 := s.callToItself()
	for _, family := range s.families() {
		m := s.notLoopback(family)
		m.Out, m.L4 = lo(), l4
		byProxy(s, c, id("outbound.self", family), m, NATAction(RedirectTo{s.Proxy.InboundPort}), "the pod calls itself through the proxy")
	}
}

// selfTests sends what the proxy sends to its own passthrough addresses to the inbound side, in TPROXY mode. That is how a validator
// which stands in for the proxy tries whether there are rules; without privileges it has no transparent socket to be handed anything.
func (s sidecar) selfTests(c natChain) {
	l4 := s.callToItself()
	for _, family := range s.families() {
		addresses, loopback := s.Proxy.PassthroughSources.Of(family), s.Outbound.Loopback.Of(family)
		if addresses.IsEmpty() || addresses.Union(loopback).Len() < addresses.Len()+loopback.Len() {
			continue // loopback stays where it is
		}
		m := Match{Out: lo(), Dst: Is(addresses), L4: l4}
		byProxy(s, c, id("outbound.test", family), m, NATAction(RedirectTo{s.Proxy.InboundPort}), "a validator tries whether there are rules")
	}
}

// callToItself matches TCP to the ports at which the pod can call itself through the proxy.
func (s sidecar) callToItself() L4 {
	var not PortSet
	if s.Proxy.TunnelPort != 0 {
		not = Ports(s.Proxy.TunnelPort)
	}
	if s.capturesDNS() {
		not = not.Union(Ports(dnsPort))
	}
	if not.IsEmpty() {
		return TCP()
	}
	return TCP().NotTo(not)
}

// notLoopback matches a family's packets that do not go to loopback.
func (s sidecar) notLoopback(family Family) Match {
	if loopback := s.Outbound.Loopback.Of(family); !loopback.IsEmpty() {
		return Match{Dst: Not(loopback)}
	}
	return Match{Family: family}
}

// bypasses leaves alone what is local and what is the proxy's own.
func (s sidecar) bypasses(c natChain) {
	if !s.Outbound.CaptureLocal {
		match := s.notProxy()
		match.Out = lo()
		if s.capturesDNS() {
			match.L4 = TCP().NotTo(Ports(dnsPort))
		}
		c.Do("outbound.local", match, Return{}, "what the application sends within the pod stays there")
	}
	byProxy(s, c, "outbound.proxy", Match{}, NATAction(Return{}), "connections of the proxy itself are never captured")
}

// notProxy matches what neither a user nor a group of the proxy sent.
func (s sidecar) notProxy() Match {
	var match Match
	if !s.Proxy.UIDs.IsEmpty() {
		match.UID = Not(s.Proxy.UIDs)
	}
	if !s.Proxy.GIDs.IsEmpty() {
		match.GID = Not(s.Proxy.GIDs)
	}
	return match
}

// byProxy writes a rule for the proxy's users and one for its groups.
func byProxy[A Action](s sidecar, c *ChainRef[A], base RuleID, match Match, action A, why string) {
	if byUser := match; !s.Proxy.UIDs.IsEmpty() {
		byUser.UID = Is(s.Proxy.UIDs)
		c.Do(base+".uid", byUser, action, why, s.Sources[ParameterProxyUIDs]...)
	}
	if byGroup := match; !s.Proxy.GIDs.IsEmpty() {
		byGroup.GID = Is(s.Proxy.GIDs)
		c.Do(base+".gid", byGroup, action, why, s.Sources[ParameterProxyGIDs]...)
	}
}

// ownerGroups leaves alone the groups that are not to be captured.
func (s sidecar) ownerGroups(c natChain) {
	groups := s.Outbound.Groups
	if groups.Limited {
		match := Match{}
		if !groups.Include.IsEmpty() {
			match.GID = Not(groups.Include)
		}
		c.Do("outbound.groups.include", match, Return{}, "only these groups are captured", s.Sources[ParameterOutboundGroupsInclude]...)
	}
	if !groups.Exclude.IsEmpty() {
		c.Do("outbound.groups.exclude", Match{GID: Is(groups.Exclude)}, Return{},
			"excluded groups", s.Sources[ParameterOutboundGroupsExclude]...)
	}
}

func (s sidecar) excludedPrefixes(c natChain) {
	for _, family := range s.families() {
		if loopback := s.Outbound.Loopback.Of(family); !loopback.IsEmpty() {
			c.Do(id("outbound.loopback", family), Match{Dst: Is(loopback)}, Return{}, "loopback stays within the pod")
		}
	}
	from := s.Sources[ParameterOutboundExclude]
	for _, family := range s.families() {
		if prefixes := s.Outbound.Exclude.Of(family); !covers(s.Outbound.Loopback, prefixes) {
			c.Do(id("outbound.exclude.prefixes", family), s.to(prefixes, excludedSet, from), Return{}, "excluded destinations", from...)
		}
	}
}

func (s sidecar) captures(c natChain) {
	excluded := s.Outbound.Exclude.Union(s.Outbound.Loopback)
	if covers(excluded, AllPrefixes().Of(s.family())) {
		return
	}
	capture := RedirectTo{s.Proxy.OutboundPort}
	if !covers(s.Outbound.ExcludePorts, s.Outbound.IncludePorts) {
		c.Do("outbound.capture.ports", Match{L4: tcpTo(s.Outbound.IncludePorts)}, capture,
			"connections to these ports go to the proxy", s.Sources[ParameterOutboundIncludePorts]...)
	}
	from := s.Sources[ParameterOutboundInclude]
	if s.Outbound.Include.IsAll() {
		c.Do("outbound.capture", Match{L4: TCP()}, capture, "all other connections go to the proxy", from...)
		return
	}
	for _, family := range s.families() {
		if prefixes := s.Outbound.Include.Of(family); !covers(excluded, prefixes) {
			match := s.to(prefixes, includedSet, from)
			match.L4 = TCP()
			c.Do(id("outbound.capture.prefixes", family), match, capture, "connections to these destinations go to the proxy", from...)
		}
	}
}
