// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// Generation is a form of the rules that Istio's own node agent writes into the pods
// (https://github.com/istio/istio, cni/pkg/iptables and cni/pkg/nftables).
type Generation string

// The generations.
const (
	// GenerationTProxy is what Istio 1.21 to 1.23 write: TPROXY for connections to the pod.
	GenerationTProxy Generation = "tproxy"
	// GenerationTProxyZones is the same in 1.24, where the configuration asks for TPROXY: the proxy's
	// own queries pass, in a zone of their own, and queries over TCP are captured.
	GenerationTProxyZones Generation = "tproxy-zones"
	// GenerationRedirect is what 1.24 and later write by iptables.
	GenerationRedirect Generation = "redirect"
	// GenerationNative is what 1.28 and later write by nft, where the configuration asks for it.
	GenerationNative Generation = "native"
)

// PodRules is what decides which rules Istio's own node agent writes into a pod.
type PodRules struct {
	Generation Generation
	// DNS captures queries.
	DNS bool
	// BypassInbound leaves connections to the pod alone. The generations of TPROXY lack it.
	BypassInbound bool
	// Unmarked leaves out the mark on connections that the proxy opens, as some releases do together
	// with BypassInbound (golden files ingress.golden of both writers).
	Unmarked bool
	// Reroute are interfaces whose connections are treated as the pod's own, in this order. The
	// generations of TPROXY lack it.
	Reroute []interception.Interface
	// IPv6 adds the rules for IPv6.
	IPv6 bool
}

// Plan returns the rules as a plan, with the numbers that the agent was configured with: for
// comparisons and traces. [ambient.PodPlan] returns the plan to apply. The error is that of
// [ambient.Numbers.Validate] or [interception.Build], or names what the generation lacks.
func (r PodRules) Plan(n ambient.Numbers, owner interception.Owner) (*interception.Plan, error) {
	if err := errors.Join(n.Validate(), r.validate()); err != nil {
		return nil, fmt.Errorf("plan rules of Istio's agent: %w", err)
	}
	return interception.Build(owner, func(b *interception.Builder) {
		p := podPlanner{PodRules: r, Numbers: n, builder: b}
		p.mangle()
		if !r.byTProxy() {
			p.prerouting()
		}
		p.output()
		if r.DNS && r.Generation != GenerationTProxy {
			p.raw()
		}
		p.replies()
	})
}

func (r PodRules) byTProxy() bool {
	return r.Generation == GenerationTProxy || r.Generation == GenerationTProxyZones
}

func (r PodRules) validate() error {
	switch {
	case !r.byTProxy() && r.Generation != GenerationRedirect && r.Generation != GenerationNative:
		return fmt.Errorf("generation %q is unknown", r.Generation)
	case r.byTProxy() && (r.BypassInbound || len(r.Reroute) > 0):
		return fmt.Errorf("generation %s neither leaves inbound connections alone nor reroutes interfaces", r.Generation)
	case r.Unmarked && !r.BypassInbound:
		return fmt.Errorf("generation %s leaves out the mark only together with inbound connections", r.Generation)
	}
	return nil
}

// podPlanner writes the plan, one rule for each of the agent's lines.
type podPlanner struct {
	PodRules
	ambient.Numbers

	builder *interception.Builder
}

func (p podPlanner) families() []interception.Family {
	return families(p.IPv6)
}

// hooked is the condition of an entry. The tables of nft are for both families in any case.
func (p podPlanner) hooked() interception.Match {
	if p.IPv6 || p.Generation == GenerationNative {
		return interception.Match{}
	}
	return interception.Match{Family: interception.IPv4}
}

// each returns the families of a line without an address: by iptables each has one, by nft both
// share it, also where IPv6 is off.
func (p podPlanner) each() []interception.Family {
	if p.Generation == GenerationNative {
		return []interception.Family{interception.BothFamilies}
	}
	return p.families()
}

// lineID returns the id of a line of one family, or of both.
func lineID(line string, family interception.Family) interception.RuleID {
	if family == interception.BothFamilies {
		return interception.RuleID(line)
	}
	return id(line, family)
}

// probe returns the address of the node's programs, which the agent has one of for each family.
func (p podPlanner) probe(family interception.Family) (interception.PrefixSet, bool) {
	i := slices.IndexFunc(p.Probes, func(a netip.Addr) bool { return interception.FamilyOf(a) == family })
	if i < 0 {
		return interception.PrefixSet{}, false
	}
	return host(p.Probes[i]), true
}

// away matches what goes to another address than loopback.
func away(family interception.Family, l4 interception.L4) interception.Match {
	return interception.Match{Dst: interception.Not(loopback(family)), L4: l4}
}

func (p podPlanner) mangle() {
	in, out := p.builder.Mangle("mangle-in"), p.builder.Mangle("mangle-out")
	in.Entry(interception.Prerouting, p.hooked(), "what reaches the pod")
	out.Entry(interception.Output, p.hooked(), "what leaves the pod")
	for _, f := range p.each() {
		if !p.Unmarked {
			in.Do(lineID("mangle.mark", f), interception.Match{Family: f, Mark: interception.Is(p.ProxyMark)},
				interception.SetConnMark{Mark: p.ReplyMark}, "connections that the proxy opens")
		}
		out.Do(lineID("mangle.restore", f), interception.Match{Family: f, ConnMark: interception.Is(p.ReplyMark)},
			interception.RestoreMark{}, "replies to the proxy")
	}
	if p.byTProxy() {
		p.tproxy(in)
	}
}

// tproxy writes the rules for connections to the pod that are delivered without a translation.
func (p podPlanner) tproxy(in *interception.ChainRef[interception.MangleAction]) {
	for _, f := range p.families() {
		if probe, has := p.probe(f); has {
			in.Do(lineID("tproxy.probe", f), interception.Match{Src: interception.Is(probe), L4: interception.TCP()}, interception.Accept{}, "probes")
		}
		self := away(f, interception.TCP())
		self.In = interception.Is(interception.Interfaces("lo"))
		in.Do(lineID("tproxy.self", f), self, interception.Accept{}, "the pod calls itself")
		deliver := func(line string, match interception.Match, port interception.Port, why string) {
			match.Mark = interception.Not(p.ProxyMark)
			in.Do(lineID(line, f), match, interception.TProxyTo{Port: port, Mark: p.ReplyMark}, why)
		}
		deliver("tproxy.tunnel", interception.Match{Family: f, L4: interception.TCP().To(interception.Ports(p.TunnelPort))}, p.TunnelPort,
			"tunnelled connections go to the proxy")
		in.Do(lineID("tproxy.established", f), interception.Match{
			Family: f, L4: interception.TCP(), State: interception.Is(interception.StateRelated | interception.StateEstablished),
		}, interception.Accept{}, "connections that have begun")
		deliver("tproxy.capture", away(f, interception.TCP()), p.InboundPort, "inbound connections go to the proxy")
	}
}

func (p podPlanner) prerouting() {
	in := p.builder.NAT("nat-in")
	in.Entry(interception.Prerouting, p.hooked(), "what reaches the pod")
	for _, name := range p.Reroute {
		for _, f := range p.each() {
			match := interception.Match{Family: f, In: interception.Is(interception.Interfaces(name)), L4: interception.TCP()}
			in.Do(lineID("reroute."+string(name), f), match, interception.RedirectTo{Port: p.OutboundPort}, "a machine in the pod")
			in.Do(lineID("reroute.return."+string(name), f), match, interception.Return{}, "a machine in the pod")
		}
	}
	if p.BypassInbound {
		return
	}
	for _, f := range p.families() {
		if probe, has := p.probe(f); has {
			in.Do(lineID("inbound.probe", f), interception.Match{Src: interception.Is(probe), L4: interception.TCP()}, interception.Accept{}, "probes")
		}
		capture := away(f, interception.TCP().NotTo(interception.Ports(p.TunnelPort)))
		capture.Mark = interception.Not(p.ProxyMark)
		in.Do(lineID("inbound.capture", f), capture, interception.RedirectTo{Port: p.InboundPort}, "inbound connections go to the proxy")
	}
}

func (p podPlanner) output() {
	out := p.builder.NAT("nat-out")
	out.Entry(interception.Output, p.hooked(), "what leaves the pod")
	for _, f := range p.families() {
		if probe, has := p.probe(f); has {
			out.Do(lineID("outbound.probe", f), interception.Match{Dst: interception.Is(probe), L4: interception.TCP()}, interception.Accept{}, "probes")
		}
	}
	if p.DNS {
		p.queries(out)
	}
	for _, f := range p.each() {
		out.Do(lineID("outbound.reply", f), interception.Match{Family: f, L4: interception.TCP(), Mark: interception.Is(p.ReplyMark)},
			interception.Accept{}, "replies to the proxy")
	}
	for _, f := range p.families() {
		self := away(f, interception.L4{})
		self.Out = interception.Is(interception.Interfaces("lo"))
		out.Do(lineID("outbound.self", f), self, interception.Accept{}, "the pod calls itself")
	}
	for _, f := range p.families() {
		capture := away(f, interception.TCP())
		capture.Mark = interception.Not(p.ProxyMark)
		out.Do(lineID("outbound.capture", f), capture, interception.RedirectTo{Port: p.OutboundPort}, "other connections go to the proxy")
	}
}

// queries captures DNS. The first generation tests no mark: its proxy asks from elsewhere.
func (p podPlanner) queries(out *interception.ChainRef[interception.NATAction]) {
	var mark interception.Condition[interception.MarkBits]
	if p.Generation != GenerationTProxy {
		mark = interception.Not(p.ProxyMark)
	}
	capture := interception.RedirectTo{Port: p.DNSPort}
	for _, f := range p.each() {
		out.Do(lineID("dns.udp", f), interception.Match{
			Family: f, Out: interception.Not(interception.Interfaces("lo")), L4: interception.UDP().To(interception.Ports(dnsPort)), Mark: mark,
		}, capture, "queries go to the proxy")
	}
	if p.Generation == GenerationTProxy {
		return
	}
	for _, f := range p.families() {
		match := away(f, interception.TCP().To(interception.Ports(dnsPort)))
		match.Mark = mark
		out.Do(lineID("dns.tcp", f), match, capture, "queries go to the proxy")
	}
}

func (p podPlanner) raw() {
	in, out := p.builder.Raw("raw-in"), p.builder.Raw("raw-out")
	in.Entry(interception.Prerouting, p.hooked(), "what reaches the pod")
	out.Entry(interception.Output, p.hooked(), "what leaves the pod")
	for _, f := range p.each() {
		out.Do(lineID("dns.zone.query", f), interception.Match{
			Family: f, L4: interception.UDP().To(interception.Ports(dnsPort)), Mark: interception.Is(p.ProxyMark),
		}, interception.SetZone{Zone: p.Zone}, "what the proxy asks")
		in.Do(lineID("dns.zone.answer", f), interception.Match{
			Family: f, L4: interception.UDP().From(interception.Ports(dnsPort)), Mark: interception.Not(p.ProxyMark),
		}, interception.SetZone{Zone: p.Zone}, "what a resolver answers the proxy")
	}
}

// replies delivers replies in the pod, as [ambient.PodPlan] does.
func (p podPlanner) replies() {
	for _, f := range p.families() {
		p.builder.Route(interception.Route{
			ID: id("replies.route", f), Type: interception.RouteLocal, Destination: everywhere(f), Device: "lo", Table: p.Table,
			Why: "replies to the proxy",
		})
		p.builder.PolicyRule(interception.PolicyRule{
			ID: id("replies.rule", f), Family: f, Mark: p.ReplyMark, Table: p.Table, Priority: p.Priority, Why: "replies to the proxy",
		})
	}
}
