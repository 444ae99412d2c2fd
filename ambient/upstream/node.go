// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// NodeRelease is a release of Istio whose agent captures on the node by iptables
// (https://github.com/istio/istio, cni/pkg/ambient).
type NodeRelease string

// The releases.
const (
	NodeRelease118 NodeRelease = "1.18"
	NodeRelease119 NodeRelease = "1.19"
	NodeRelease120 NodeRelease = "1.20"
)

// NodeRules is what decides which rules the agent of Istio 1.18 to 1.20 writes on a node. It
// knows IPv4 only. The zero value is invalid.
type NodeRules struct {
	// Release is the agent's.
	Release NodeRelease
	// Proxy is the address of the proxy's pod, and ProxyLink the node's interface to it.
	Proxy     netip.Addr
	ProxyLink interception.Interface
	// PodLink is the interface of the proxy's pod.
	PodLink interception.Interface
	// Node is the node's address that the agent has chosen.
	Node netip.Addr
	// UDPPort is the port of its GENEVE tunnels: 6081 in 1.18, and one that was free in later ones.
	UDPPort interception.Port
	// DNS sends queries over UDP to the proxy.
	DNS bool
}

// ErrNodeRules is wrapped by errors about a [NodeRules] that cannot be.
var ErrNodeRules = errors.New("invalid rules of upstream's agent")

// The marks that the agent writes. Skipped is part of Kept and Spoofed.
const (
	upstreamOutbound interception.Mark = 0x100
	upstreamSkipped  interception.Mark = 0x200
	upstreamKept     interception.Mark = 0x220
	upstreamSpoofed  interception.Mark = 0x210
	upstreamReply    interception.Mark = 0x040
)

// first moves jumps before those of other programs.
const first = -10

// equal returns the bits of a mark that is its own mask.
func equal(m interception.Mark) interception.MarkBits {
	return interception.MarkBits{Value: m, Mask: m}
}

// Former returns what a plan for the node must know to stand beside the agent's rules
// ([ambient.NodeNumbers].Former). [ambient.BesideIstioNodeNumbers] are numbers that the agent does
// not use.
func (u NodeRules) Former() ambient.FormerCapture {
	return ambient.FormerCapture{Skipped: equal(upstreamSkipped), ProxyLink: u.ProxyLink}
}

// NodePods is the name of the set of meshed pods in the plan of [NodeRules.Plan], and that
// of the agent's ipset.
const NodePods interception.SetName = "ztunnel-pods-ips"

// Plan returns the agent's rules in the node's namespace as a plan: for comparisons and traces.
// [ambient.NodePlan] returns the plan to apply. It has the rules alone, without the agent's
// tunnels, routes and policy rules. Each rule has the id of its line, in the agent's order.
func (u NodeRules) Plan(owner interception.Owner) (*interception.Plan, error) {
	if err := u.validate(); err != nil {
		return nil, fmt.Errorf("plan upstream's rules on the node: %w", err)
	}
	return interception.Build(owner, func(b *interception.Builder) {
		p := nodePlanner{NodeRules: u, pods: b.LiveAddresses(NodePods, interception.IPv4, "meshed pods")}
		p.nat(b)
		p.prerouting(b)
		p.saved(b)
		if u.Release != NodeRelease118 {
			forward := b.Filter("forward")
			forward.EntryAt(interception.Forward, first, v4(), "forwarded packets")
			forward.Do("n12", marked(upstreamOutbound), interception.Accept{}, "captured packets pass")
		}
	})
}

func (u NodeRules) validate() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrNodeRules, fmt.Sprintf(format, args...))
	}
	switch {
	case u.Release != NodeRelease118 && u.Release != NodeRelease119 && u.Release != NodeRelease120:
		return fail("release %q is unknown: choose 1.18, 1.19 or 1.20", u.Release)
	case !u.Proxy.Is4() || !u.Node.Is4():
		return fail("the proxy has %s and the node %s: both addresses are of IPv4", u.Proxy, u.Node)
	case u.UDPPort == 0:
		return fail("the port of its tunnels must be set")
	}
	return nil
}

// nodePlanner writes the plan.
type nodePlanner struct {
	NodeRules

	pods interception.SetRef
}

func v4() interception.Match { return interception.Match{Family: interception.IPv4} }

func marked(m interception.Mark) interception.Match {
	return interception.Match{Family: interception.IPv4, Mark: interception.Is(equal(m))}
}

func (p nodePlanner) nat(b *interception.Builder) {
	in, out := b.NAT("nat-in"), b.NAT("nat-out")
	in.EntryAt(interception.Prerouting, first, v4(), "destinations")
	out.EntryAt(interception.Postrouting, first, v4(), "sources")
	in.Do("n10", marked(upstreamOutbound), interception.Accept{}, "captured packets keep their destination")
	out.Do("n11", marked(upstreamOutbound), interception.Accept{}, "captured packets keep their source")
	if p.DNS {
		in.Do("n13", interception.Match{SrcSet: interception.Is(p.pods), L4: interception.UDP().To(interception.Ports(dnsPort))},
			interception.DNATTo{Addr: p.Proxy, Port: upstreamDNSPort}, "queries go to the proxy")
	}
}

// upstreamDNSPort is the port of the proxy's resolver.
const upstreamDNSPort interception.Port = 15053

// prerouting writes both lists' rules about what arrives.
func (p nodePlanner) prerouting(b *interception.Builder) {
	c := b.Mangle("mangle-in")
	c.EntryAt(interception.Prerouting, first, v4(), "what arrives")
	from := func(link interception.Interface) interception.Match {
		return interception.Match{Family: interception.IPv4, In: interception.Is(interception.Interfaces(link))}
	}
	skip := interception.SetMark{Mark: equal(upstreamSkipped)}
	c.Do("n1", from("istioin"), skip, "what leaves a tunnel")
	c.Do("n2", from("istioin"), interception.Return{}, "what leaves a tunnel")
	c.Do("n3", from("istioout"), skip, "what leaves a tunnel")
	c.Do("n4", from("istioout"), interception.Return{}, "what leaves a tunnel")
	c.Do("n14", interception.Match{Family: interception.IPv4, L4: interception.UDP().To(interception.Ports(p.UDPPort))}, interception.Return{},
		"tunnels")
	c.Do("n15", interception.Match{Family: interception.IPv4, ConnMark: interception.Is(equal(upstreamKept))}, skip,
		"connections that are left alone")
	c.Do("n16", marked(upstreamSkipped), interception.Return{}, "left alone")
	c.Do("n17", interception.Match{
		Family: interception.IPv4, In: interception.Not(interception.Interfaces(p.ProxyLink)), ConnMark: interception.Is(equal(upstreamSpoofed)),
	}, interception.SetMark{Mark: equal(upstreamReply)}, "replies to the proxy")
	c.Do("n18", marked(upstreamReply), interception.Return{}, "replies to the proxy")
	others := from(p.ProxyLink)
	others.Src = interception.Not(host(p.Proxy))
	c.Do("n19", others, interception.SetMark{Mark: equal(upstreamSpoofed)}, "the proxy uses the address of its client")
	c.Do("n20", marked(upstreamSkipped), interception.Return{}, "left alone")
	c.Do("n21", from(p.ProxyLink), interception.SetMark{Mark: equal(upstreamKept)}, "what the proxy itself sends")
	c.Do("n22", interception.Match{Family: interception.IPv4, L4: interception.UDP()}, interception.SetMark{Mark: equal(upstreamKept)},
		"UDP is left alone")
	c.Do("n23", marked(upstreamSkipped), interception.Return{}, "left alone")
	c.Do("n24", interception.Match{SrcSet: interception.Is(p.pods), L4: interception.TCP()},
		interception.SetMark{Mark: equal(upstreamOutbound)}, "what meshed pods send")
}

// saved writes the rules that keep marks with connections, and the one about the node's own
// packets.
func (p nodePlanner) saved(b *interception.Builder) {
	b.Mangle("mangle-post").EntryAt(interception.Postrouting, first, v4(), "nothing: the chain is empty")
	out := b.Mangle("mangle-out")
	out.EntryAt(interception.Output, first, v4(), "what the node sends")
	own := interception.Match{Src: interception.Is(host(p.Node))}
	if p.Release == NodeRelease120 {
		own.L4, own.UID, own.DstSet = interception.TCP(), everyUser(), interception.Is(p.pods)
	}
	out.Do("n9", own, interception.SetMark{Mark: interception.WholeMark(upstreamKept)}, "what the node sends")
	for _, to := range []struct {
		chain       interception.ChainName
		hook        interception.Hook
		kept, other interception.RuleID
	}{{"mangle-input", interception.Input, "n6", "n8"}, {"mangle-forward", interception.Forward, "n5", "n7"}} {
		c := b.Mangle(to.chain)
		c.EntryAt(to.hook, first, v4(), "marks of connections")
		c.Do(to.kept, marked(upstreamKept), interception.SaveMark{Mask: upstreamKept}, "connections that are left alone")
		c.Do(to.other, marked(upstreamSpoofed), interception.SaveMark{Mask: upstreamSpoofed}, "connections of the proxy in the name of others")
	}
}

// ProxyPlan returns the agent's rules in the proxy's namespace as a plan, with its policy rules and
// the route that delivers captured packets. The agent writes them straight into the chain of the
// hook.
func (u NodeRules) ProxyPlan(owner interception.Owner) (*interception.Plan, error) {
	if err := u.validate(); err != nil {
		return nil, fmt.Errorf("plan upstream's rules in the proxy's pod: %w", err)
	}
	const mask, delivered, reply = 0xfff, 0x400, 0x4d3
	return interception.Build(owner, func(b *interception.Builder) {
		const why = "captured packets are for the proxy"
		b.Route(interception.Route{
			ID: "delivered", Type: interception.RouteLocal, Destination: everywhere(interception.IPv4), Device: "lo", Table: 100, Why: why,
		})
		for i, mark := range []interception.Mark{delivered, reply} {
			priority := []uint32{20000, 20003}[i]
			b.PolicyRule(interception.PolicyRule{
				ID: interception.RuleID(fmt.Sprintf("mark.%d", priority)), Family: interception.IPv4,
				Mark: interception.MarkBits{Value: mark, Mask: mask}, Table: 100, Priority: priority, Why: why,
			})
		}
		c := b.Mangle("mangle-in")
		c.Entry(interception.Prerouting, v4(), "what arrives")
		to := func(id interception.RuleID, link interception.Interface, l4 interception.L4, port interception.Port) {
			c.Do(id, interception.Match{Family: interception.IPv4, In: interception.Is(interception.Interfaces(link)), L4: l4},
				interception.TProxyTo{Port: port, Mark: interception.MarkBits{Value: delivered, Mask: mask}}, why)
		}
		numbers := ambient.IstioNodeNumbers()
		to("z1", "pistioin", interception.TCP().To(interception.Ports(numbers.TunnelPort)), numbers.TunnelPort)
		to("z2", "pistioout", interception.TCP(), numbers.OutboundPort)
		to("z3", "pistioin", interception.TCP(), numbers.InboundPort)
		c.Do("z4", interception.Match{
			In: interception.Is(interception.Interfaces(u.PodLink)), Dst: interception.Not(host(u.Proxy)), L4: interception.TCP(),
		}, interception.SetMark{Mark: interception.MarkBits{Value: reply, Mask: mask}}, "replies to the proxy")
	})
}
