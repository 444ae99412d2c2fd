// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// opening matches the first packet of a TCP connection.
func opening() interception.L4 { return interception.TCP().Flags(interception.Opening()) }

// host returns the set of one address.
func host(a netip.Addr) interception.PrefixSet {
	return interception.Prefixes(netip.PrefixFrom(a, a.BitLen()))
}

// original returns the condition on packets of whom opened a connection with this mark.
func original(mark interception.MarkBits) interception.Match {
	return interception.Match{ConnMark: interception.Is(mark), Direction: interception.DirectionOriginal}
}

// Only packets that a rule of a chain can match jump into it: the first packets of TCP connections,
// packets of connections with a mark, and packets that come by a wire. The first packet decides
// whether a connection gets a mark. A connection without one is not captured, even if its pod
// becomes a member of the set later, so its further packets need no rule. An ICMP error has the
// mark of the connection that it is about, and a packet of no connection has none.

// marked narrows a jump to the packets of connections that have one of these marks, of whatever
// generation.
func (p nodePlanner) marked(hook interception.Match, marks ...interception.MarkBits) interception.Match {
	var none interception.MarkBits
	for _, mark := range marks {
		none.Mask |= mark.Value
	}
	hook.ConnMark = interception.Not(none)
	return hook
}

// capture writes the rules about what the proxies and meshed pods send.
func (p nodePlanner) capture() {
	if p.isWired() {
		p.proxied()
	}
	c := p.builder.Mangle("capture")
	c.EntryAt(interception.Prerouting, nodeFirst, p.hooked(opening()), "connections that pods open")
	if p.isWired() {
		c.Do("outbound.wire", interception.Match{In: p.wires}, interception.Return{}, whyProxied)
	}
	if p.Former.ProxyLink != "" {
		c.Do("outbound.former", p.Former.fromProxy(), interception.Return{}, whyFormer)
	}
	for _, family := range families(p.facts) {
		if p.Former.InPods {
			c.Do(id("outbound.tunnel", family), interception.Match{SrcSet: interception.Is(p.meshed[family]), L4: p.tunnels()}, interception.Return{},
				whyTunnels)
		}
		c.Do(id("outbound.open", family), interception.Match{SrcSet: interception.Is(p.meshed[family]), L4: opening()},
			interception.SetConnMark{Mark: p.proxies[0].Outbound.Mark}, "connections that meshed pods open are captured")
	}
	p.captured()
}

// proxied writes the rules about what the proxies send by their wires. The zone is set for all of
// it: replies to clients are found in the default zone all the same, and ICMP errors about answers
// to the proxy are found only with it.
func (p nodePlanner) proxied() {
	hook := p.hooked(interception.L4{})
	hook.In = p.wires
	raw := p.builder.Raw("apart")
	raw.EntryAt(interception.Prerouting, nodeFirst, hook, "what the proxy sends")
	for _, of := range p.wired() {
		zone := interception.SetZone{Zone: of.Zone, Direction: interception.DirectionOriginal}
		raw.Do(interception.RuleID(of.wireID("proxy.zone")), of.sent(), zone, "connections of the proxy are told from equal ones of its clients")
	}
	c := p.builder.Mangle("proxied")
	c.EntryAt(interception.Prerouting, nodeFirst, hook, "what the proxy sends")
	for _, of := range p.wired() {
		opens := of.sent()
		opens.L4, opens.Direction = interception.TCP(), interception.DirectionOriginal
		c.Do(interception.RuleID(of.wireID("proxy.opens")), opens, interception.SetConnMark{Mark: of.Opened},
			"the proxy opens connections in the name of others")
	}
	if skipped := p.Former.Skipped; !skipped.IsEmpty() {
		c.Do("proxy.skipped", interception.Match{In: p.wires}, interception.SetMark{Mark: skipped}, "another program leaves it alone")
	}
}

// sent matches what the proxy sends by its wires.
func (p proxyNumbers) sent() interception.Match {
	return interception.Match{In: interception.Is(interception.Interfaces(p.InboundWire.Node, p.OutboundWire.Node))}
}

// captured writes the rules about the packets of connections that are known to be the mesh's.
func (p nodePlanner) captured() {
	c := p.builder.Mangle("captured")
	hook := p.marked(p.hooked(interception.L4{}), p.Opened, p.Outbound.Mark)
	c.EntryAt(interception.Prerouting, nodeFirst, hook, "connections that were captured, or opened by the proxy")
	if p.isWired() {
		c.Do("proxy.passes", interception.Match{In: p.wires}, interception.Return{}, whyProxied)
		for _, of := range p.wired() {
			c.Do(interception.RuleID(of.wireID("proxy.answer")), interception.Match{ConnMark: interception.Is(of.Opened)},
				interception.SetMark{Mark: of.Replies.Mark}, whyReplies)
		}
	}
	if p.Former.ProxyLink != "" {
		c.Do("former.passes", p.Former.fromProxy(), interception.Return{}, whyFormer)
	}
	p.mark(c, "outbound.mark", func(n NodeNumbers) interception.MarkBits { return n.Outbound.Mark })
}

// answered writes the rules about what the node's own programs answer the proxies: another program
// may have translated the address that a proxy opened a connection to, of a service for example, to
// one of the node's own. What the node says to the other end, such as that a packet was too big for
// a wire, is no answer.
func (p nodePlanner) answered() {
	if !p.isWired() {
		return
	}
	c := p.builder.Mangle("answered")
	hook := p.marked(p.hooked(interception.L4{}), p.Opened)
	c.EntryAt(interception.Output, nodeFirst, hook, "connections that the proxy opened to the node itself")
	for _, of := range p.wired() {
		answer := interception.Match{ConnMark: interception.Is(of.Opened), Direction: interception.DirectionReply}
		c.Do(interception.RuleID(of.wireID("node.answer")), answer, interception.SetMark{Mark: of.Replies.Mark}, whyReplies)
	}
}

// mark gives the packets of captured connections the marks of the connections, by which the routes
// to their proxies are chosen.
func (p nodePlanner) mark(c *interception.ChainRef[interception.MangleAction], base string, of func(NodeNumbers) interception.MarkBits) {
	proxies := p.wired()
	if len(proxies) == 0 {
		proxies = p.proxies // new connections are marked all the same, and rejected
	}
	for _, proxy := range proxies {
		mark := of(proxy.NodeNumbers)
		c.Do(interception.RuleID(proxy.wireID(base)), original(mark), interception.SetMark{Mark: mark}, whyToProxy)
	}
}

// own returns the addresses of all proxies of a family.
func (p nodePlanner) own(family interception.Family) interception.PrefixSet {
	var own []netip.Prefix
	for _, proxy := range p.proxies {
		if a := proxy.address(family); a.IsValid() {
			own = append(own, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return interception.Prefixes(own...)
}

// inbound writes the rules about connections to meshed pods, whose destination is known after its
// translation.
func (p nodePlanner) inbound() {
	c := p.builder.Mangle("inbound")
	c.EntryAt(interception.Prerouting, afterTranslation, p.hooked(opening()), "connections to meshed pods")
	if p.isWired() {
		c.Do("inbound.wire", interception.Match{In: p.wires}, interception.Return{}, whyProxied)
	}
	if p.Former.ProxyLink != "" {
		c.Do("inbound.former", p.Former.fromProxy(), interception.Return{}, whyFormer)
	}
	c.Do("inbound.outbound", interception.Match{ConnMark: interception.Is(p.Outbound.Mark)}, interception.Return{}, "captured as outbound")
	for _, family := range families(p.facts) {
		if own := p.own(family); !own.IsEmpty() {
			c.Do(id("inbound.proxy", family), interception.Match{Src: interception.Is(own)}, interception.Return{},
				"connections of the proxy itself are never captured")
		}
	}
	for _, family := range families(p.facts) {
		if p.Former.InPods {
			c.Do(id("inbound.tunnel", family), interception.Match{DstSet: interception.Is(p.shared[family]), L4: p.tunnels()}, interception.Return{},
				whyTunnels)
		}
		c.Do(id("inbound.open", family), interception.Match{DstSet: interception.Is(p.meshed[family]), L4: opening()},
			interception.SetConnMark{Mark: p.proxies[0].Inbound.Mark}, "connections to meshed pods are captured")
	}
	c = p.builder.Mangle("received")
	hook := p.marked(p.hooked(interception.TCP()), p.Inbound.Mark)
	c.EntryAt(interception.Prerouting, afterTranslation, hook, "captured connections to meshed pods")
	p.mark(c, "inbound.mark", func(n NodeNumbers) interception.MarkBits { return n.Inbound.Mark })
}

// translations writes the nat rules: queries go to the proxy, and captured connections keep their
// addresses.
func (p nodePlanner) translations() {
	if !p.isWired() {
		return
	}
	in := p.builder.NAT("arriving")
	in.EntryAt(interception.Prerouting, nodeFirst, p.hooked(interception.L4{}), "destinations of meshed pods")
	if p.DNS {
		for _, family := range p.families() {
			in.Do(id("dns.udp", family), interception.Match{
				SrcSet: interception.Is(p.meshed[family]), L4: interception.UDP().To(interception.Ports(dnsPort)),
			}, interception.DNATTo{Addr: p.address(family), Port: p.DNSPort}, "queries go to the proxy")
		}
	}
	in.Do("outbound.destination", interception.Match{L4: interception.TCP(), Mark: interception.Is(p.Outbound.Mark)}, interception.Accept{},
		"captured connections keep their destination")
	out := p.builder.NAT("leaving")
	out.EntryAt(interception.Postrouting, nodeFirst, p.hooked(interception.L4{}), "sources of captured connections")
	for _, family := range families(p.facts) {
		out.Do(id("captured.source", family), interception.Match{Family: family, Out: p.wires}, interception.SNATTo{Keep: true},
			"captured connections keep their source")
	}
}

// guard writes the rules that let captured connections pass by their wires only.
func (p nodePlanner) guard() {
	c := p.builder.Filter("guard")
	ours := p.marked(p.hooked(interception.L4{}), p.Opened, p.Outbound.Mark, p.Inbound.Mark)
	c.EntryAt(interception.Forward, nodeFirst, ours, "captured connections")
	other := func(m interception.Match, than interception.Interface) interception.Match {
		if p.isWired() {
			m.Out = interception.Not(interception.Interfaces(than))
		}
		return m
	}
	const why = "captured connections leave by their wire or not at all"
	if p.isWired() {
		c.Do("guard.proxy", interception.Match{In: p.wires}, interception.Return{}, "what the proxy sends goes its way")
	}
	c.Do("guard.outbound", other(original(p.Outbound.Mark), p.out), interception.Reject{}, why)
	c.Do("guard.inbound", other(original(p.Inbound.Mark), p.in), interception.Reject{}, why)
	c.Do("guard.reply", other(interception.Match{ConnMark: interception.Is(p.Opened)}, p.out), interception.Reject{}, why)
	if p.isWired() {
		c.Do("guard.captured", interception.Match{Out: p.wires}, interception.Accept{}, "no other filter judges what goes to the proxy")
	}
}
