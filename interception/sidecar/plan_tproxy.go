// SPDX-License-Identifier: Apache-2.0

package sidecar

import "github.com/meshcni/meshcni/interception"

// transparent writes the mangle rules, for invalid packets and for TPROXY mode.
func (p planner) transparent() {
	if !p.tproxies() && !p.DropInvalid {
		return
	}
	c := p.builder.Mangle("inbound")
	c.Entry(interception.Prerouting, interception.Match{Family: p.family(), L4: interception.TCP()}, "packets to the pod")
	if !p.Interfaces.Exclude.IsEmpty() {
		c.Do("tproxy.exclude.interfaces", interception.Match{In: interception.Is(p.Interfaces.Exclude)}, interception.Return{},
			"excluded interfaces", p.Sources[ParameterInterfacesExclude]...)
	}
	if p.DropInvalid {
		c.Do("drop.invalid", interception.Match{L4: interception.TCP(), State: interception.Is(interception.StateInvalid)}, interception.Drop{},
			"an invalid packet would reset a connection", p.Sources[ParameterDropInvalid]...)
	}
	if p.tproxies() {
		p.tproxyInbound(c)
		p.tproxyOutput()
		p.tproxyRoutes()
	}
}

// tproxies reports whether inbound connections reach the proxy unchanged.
func (p planner) tproxies() bool { return p.Mode == ModeTProxy && !p.Inbound.Include.IsEmpty() }

func (p planner) mark() interception.MarkBits     { return interception.WholeMark(p.TProxy.Mark) }
func (p planner) selfMark() interception.MarkBits { return interception.WholeMark(p.TProxy.SelfMark) }

// tproxyInbound decides about packets that arrive on an interface.
func (p planner) tproxyInbound(c *interception.ChainRef[interception.MangleAction]) {
	from := p.Sources[ParameterMode]
	if p.reroutes() {
		c.Do("tproxy.reroute", interception.Match{In: interception.Is(p.Interfaces.Reroute)}, interception.Return{},
			"what virtual machines send is outbound", p.Sources[ParameterInterfacesReroute]...)
	}
	c.Do("tproxy.save", interception.Match{In: lo(), L4: interception.TCP(), Mark: interception.Is(p.mark())}, interception.SaveMark{},
		"replies must find back to the proxy", from...)
	c.Do("tproxy.own", interception.Match{In: lo(), L4: interception.TCP(), Mark: interception.Is(p.mark())}, interception.Return{},
		"the proxy sends in the name of its client", from...)
	for _, family := range p.families() {
		if sources := p.Proxy.PassthroughSources.Of(family); !sources.IsEmpty() {
			c.Do(id("tproxy.passthrough", family), interception.Match{In: lo(), Src: interception.Is(sources), L4: interception.TCP()},
				interception.Return{},
				"the proxy hands a connection to the application")
		}
	}
	c.Do("tproxy.local", interception.Match{In: lo(), L4: interception.TCP(), Mark: interception.Not(p.selfMark())}, interception.Return{},
		"what the application sends within the pod stays there", from...)
	if p.Proxy.TunnelPort != 0 {
		c.Do("tproxy.tunnel", interception.Match{L4: interception.TCP().To(interception.Ports(p.Proxy.TunnelPort))}, interception.Return{},
			"tunnelled connections are for the proxy already")
	}
	if !p.Inbound.Exclude.IsEmpty() {
		c.Do("tproxy.exclude.ports", interception.Match{L4: tcpTo(p.Inbound.Exclude)}, interception.Return{},
			"excluded inbound ports", p.Sources[ParameterInboundExclude]...)
	}
	if p.capturesSomeInbound() {
		p.tproxyCapture(c)
	}
}

// tproxyCapture hands the remaining packets to the proxy.
func (p planner) tproxyCapture(c *interception.ChainRef[interception.MangleAction]) {
	from := p.Sources[ParameterMode]
	divert := p.builder.Mangle("divert")
	divert.Do("tproxy.divert.mark", interception.Match{}, interception.SetMark{Mark: p.mark()}, "the proxy has the connection already", from...)
	divert.Do("tproxy.divert.accept", interception.Match{}, interception.Accept{}, "policy routing delivers what is marked", from...)
	included := tcpTo(p.Inbound.Include)
	p.tproxyReplies(c)
	c.Call("tproxy.divert",
		interception.Match{L4: included, State: interception.Is(interception.StateEstablished | interception.StateRelated)}, divert,
		"packets of connections that the proxy has", from...)
	for _, family := range p.families() {
		match := p.notLoopback(family)
		match.L4 = included
		c.Do(id("tproxy.capture", family), match, interception.TProxyTo{Port: p.Proxy.InboundPort, Mark: p.mark()},
			"inbound connections go to the proxy", p.Sources[ParameterInboundInclude]...)
	}
}

// tproxyReplies leaves alone the replies in connections that the pod forwards: those from an
// excluded interface, and uncaptured ones from a rerouted interface. Other replies reach the pod
// with or without the mark.
func (p planner) tproxyReplies(c *interception.ChainRef[interception.MangleAction]) {
	var from []interception.Source
	if !p.Interfaces.Exclude.IsEmpty() {
		from = append(from, p.Sources[ParameterInterfacesExclude]...)
	}
	if p.reroutes() {
		from = append(from, p.Sources[ParameterInterfacesReroute]...)
	}
	if p.reroutes() || !p.Interfaces.Exclude.IsEmpty() {
		c.Do("tproxy.reply", interception.Match{L4: interception.TCP(), Direction: interception.DirectionReply}, interception.Return{},
			"answers go to where the connection was opened, be it beyond the pod", from...)
	}
}

// tproxyOutput marks what the pod sends, to recognise it when it returns on lo.
func (p planner) tproxyOutput() {
	from := p.Sources[ParameterMode]
	c := p.builder.Mangle("output")
	c.Entry(interception.Output, interception.Match{Family: p.family(), L4: interception.TCP()}, "packets from the pod")
	c.Do("tproxy.output.own", interception.Match{Out: lo(), L4: interception.TCP(), Mark: interception.Is(p.mark())}, interception.Return{},
		"the proxy sends in the name of its client", from...)
	for _, family := range p.families() {
		match := p.notLoopback(family)
		match.Out, match.L4 = lo(), interception.TCP()
		byProxy(p, c, id("tproxy.output.self", family), match, interception.MangleAction(interception.SetMark{Mark: p.selfMark()}),
			"the pod calls itself through the proxy")
	}
	c.Do("tproxy.restore", interception.Match{L4: interception.TCP(), ConnMark: interception.Is(p.mark())}, interception.RestoreMark{},
		"replies find back to the proxy", from...)
}

// tproxyRoutes delivers marked packets to the pod itself, whatever their destination.
func (p planner) tproxyRoutes() {
	from := p.Sources[ParameterMode]
	for _, family := range p.families() {
		p.builder.Route(interception.Route{
			ID: id("tproxy.route", family), Type: interception.RouteLocal,
			Destination: interception.AllPrefixes().Of(family).Prefixes()[0], Device: "lo",
			Table: p.TProxy.Table, Why: "what is marked is delivered to the proxy", From: from,
		})
		p.builder.PolicyRule(interception.PolicyRule{
			ID: id("tproxy.rule", family), Family: family, Mark: p.mark(), Table: p.TProxy.Table, Priority: p.TProxy.Priority,
			Why: "what is marked is routed by a table of its own", From: from,
		})
	}
}
