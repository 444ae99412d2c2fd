// SPDX-License-Identifier: Apache-2.0

package interception

// transparent is what mangle does: it drops invalid packets and, in TPROXY mode, hands inbound packets to the proxy as they are.
func (s sidecar) transparent() {
	if !s.tproxies() && !s.DropInvalid {
		return
	}
	c := s.builder.Mangle("inbound")
	c.Entry(Prerouting, Match{Family: s.family(), L4: TCP()}, "packets to the pod")
	if !s.Interfaces.Exclude.IsEmpty() {
		c.Do("tproxy.exclude.interfaces", Match{In: Is(s.Interfaces.Exclude)}, Return{},
			"excluded interfaces", s.Sources[ParameterInterfacesExclude]...)
	}
	if s.DropInvalid {
		c.Do("drop.invalid", Match{L4: TCP(), State: Is(StateInvalid)}, Drop{},
			"an invalid packet would reset a connection", s.Sources[ParameterDropInvalid]...)
	}
	if s.tproxies() {
		s.tproxyInbound(c)
		s.tproxyOutput()
		s.tproxyRoutes()
	}
}

// tproxies reports whether inbound connections reach the proxy as they are.
func (s sidecar) tproxies() bool { return s.Mode == ModeTProxy && !s.Inbound.Include.IsEmpty() }

func (s sidecar) mark() MarkBits     { return WholeMark(s.TProxy.Mark) }
func (s sidecar) selfMark() MarkBits { return WholeMark(s.TProxy.SelfMark) }

// tproxyInbound decides about packets that come by an interface.
func (s sidecar) tproxyInbound(c *ChainRef[MangleAction]) {
	from := s.Sources[ParameterMode]
	if s.reroutes() {
		c.Do("tproxy.reroute", Match{In: Is(s.Interfaces.Reroute)}, Return{},
			"what virtual machines send is outbound", s.Sources[ParameterInterfacesReroute]...)
	}
	c.Do("tproxy.save", Match{In: lo(), L4: TCP(), Mark: Is(s.mark())}, SaveMark{}, "replies must find back to the proxy", from...)
	c.Do("tproxy.own", Match{In: lo(), L4: TCP(), Mark: Is(s.mark())}, Return{}, "the proxy sends in the name of its client", from...)
	for _, family := range s.families() {
		if sources := s.Proxy.PassthroughSources.Of(family); !sources.IsEmpty() {
			c.Do(id("tproxy.passthrough", family), Match{In: lo(), Src: Is(sources), L4: TCP()}, Return{},
				"the proxy hands a connection to the application")
		}
	}
	c.Do("tproxy.local", Match{In: lo(), L4: TCP(), Mark: Not(s.selfMark())}, Return{},
		"what the application sends within the pod stays there", from...)
	if s.Proxy.TunnelPort != 0 {
		c.Do("tproxy.tunnel", Match{L4: TCP().To(Ports(s.Proxy.TunnelPort))}, Return{},
			"tunnelled connections are for the proxy already")
	}
	if !s.Inbound.Exclude.IsEmpty() {
		c.Do("tproxy.exclude.ports", Match{L4: tcpTo(s.Inbound.Exclude)}, Return{},
			"excluded inbound ports", s.Sources[ParameterInboundExclude]...)
	}
	if s.includesInbound() {
		s.tproxyCapture(c)
	}
}

// tproxyCapture hands over what was not left alone before.
func (s sidecar) tproxyCapture(c *ChainRef[MangleAction]) {
	from := s.Sources[ParameterMode]
	divert := s.builder.Mangle("divert")
	divert.Do("tproxy.divert.mark", Match{}, SetMark{s.mark()}, "the proxy has the connection already", from...)
	divert.Do("tproxy.divert.accept", Match{}, Accept{}, "policy routing delivers what is marked", from...)
	included := tcpTo(s.Inbound.Include)
	s.tproxyReplies(c)
	c.Call("tproxy.divert", Match{L4: included, State: Is(StateEstablished | StateRelated)}, divert,
		"packets of connections that the proxy has", from...)
	if s.Existing == ExistingSpare {
		c.Do("tproxy.spare", older(), Return{}, whySpared)
	}
	for _, family := range s.families() {
		match := s.notLoopback(family)
		match.L4 = included
		c.Do(id("tproxy.capture", family), match, TProxyTo{s.Proxy.InboundPort, s.mark()},
			"inbound connections go to the proxy", s.Sources[ParameterInboundInclude]...)
	}
}

// tproxyReplies leaves alone the answers to connections that came by an excluded interface, or by a rerouted one and were not captured:
// the pod forwards these. The others are for the pod, with the mark as without.
func (s sidecar) tproxyReplies(c *ChainRef[MangleAction]) {
	var from []Source
	if !s.Interfaces.Exclude.IsEmpty() {
		from = append(from, s.Sources[ParameterInterfacesExclude]...)
	}
	if s.reroutes() {
		from = append(from, s.Sources[ParameterInterfacesReroute]...)
	}
	if s.reroutes() || !s.Interfaces.Exclude.IsEmpty() {
		c.Do("tproxy.reply", Match{L4: TCP(), Direction: DirectionReply}, Return{},
			"answers go to where the connection was opened, be it beyond the pod", from...)
	}
}

// tproxyOutput marks what the pod sends so that it is recognised when it comes in again.
func (s sidecar) tproxyOutput() {
	from := s.Sources[ParameterMode]
	c := s.builder.Mangle("output")
	c.Entry(Output, Match{Family: s.family(), L4: TCP()}, "packets from the pod")
	c.Do("tproxy.output.own", Match{Out: lo(), L4: TCP(), Mark: Is(s.mark())}, Return{}, "the proxy sends in the name of its client", from...)
	for _, family := range s.families() {
		match := s.notLoopback(family)
		match.Out, match.L4 = lo(), TCP()
		byProxy(s, c, id("tproxy.output.self", family), match, MangleAction(SetMark{s.selfMark()}), "the pod calls itself through the proxy")
	}
	c.Do("tproxy.restore", Match{L4: TCP(), ConnMark: Is(s.mark())}, RestoreMark{}, "replies find back to the proxy", from...)
}

// tproxyRoutes delivers what is marked to the pod itself, whatever its destination.
func (s sidecar) tproxyRoutes() {
	from := s.Sources[ParameterMode]
	for _, family := range s.families() {
		s.builder.Route(Route{
			ID: id("tproxy.route", family), Type: RouteLocal, Destination: AllPrefixes().Of(family).Prefixes()[0], Device: "lo",
			Table: s.TProxy.Table, Why: "what is marked is delivered to the proxy", From: from,
		})
		s.builder.PolicyRule(PolicyRule{
			ID: id("tproxy.rule", family), Family: family, Mark: s.mark(), Table: s.TProxy.Table, Priority: s.TProxy.Priority,
			Why: "what is marked is routed by a table of its own", From: from,
		})
	}
}
