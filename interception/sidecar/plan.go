// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// setThreshold is the number of prefixes from which on a rule refers to a named set: up to there a literal list reads better, and
// costs the same.
const setThreshold = 8

// Plan makes the plan for a pod with a proxy of its own. It is pure: the same redirect, facts and owner give the same plan.
//
// A TCP connection to the pod is decided by the first line that applies to it:
//
//  1. older than the plan, with ExistingSpare: left alone
//  2. by a rerouted interface: as outbound line 12 says, else left alone
//  3. by an excluded interface: left alone
//  4. to the tunnel port: left alone
//  5. to an excluded inbound port: left alone
//  6. to an included inbound port: to Proxy.InboundPort
//  7. anything else: left alone
//
// In TPROXY mode, where the packet reaches the proxy as it is, what the pod sends to itself is left alone before line 4, save what the
// proxy sends from another source than a passthrough one, and to another address than loopback; and what the proxy sends in its clients'
// name carries the mark TProxy.Mark, by which replies find back to it. With an excluded or rerouted interface, behind which
// connections may begin that the pod forwards, replies are left alone after line 5: they go to where the connection was opened.
//
// What leaves the pod (TCP, and UDP as far as DNS goes), likewise:
//
//  1. older than the plan, with ExistingSpare: left alone
//  2. by an excluded interface: left alone
//  3. to an excluded outbound port: left alone
//  4. over loopback from a passthrough source, the proxy handing a connection to the application: left alone
//  5. over loopback by the proxy's user or group, to another address than loopback (the pod calling itself through the proxy), and
//     not to the tunnel port nor, with DNS capture, to port 53: to Proxy.InboundPort
//  6. over loopback by anybody else: left alone, unless Outbound.CaptureLocal; with DNS capture, TCP to other ports than 53 only
//  7. by the proxy's user or group: left alone
//  8. by a group that Outbound.Groups does not capture: left alone
//  9. to port 53, with DNS capture, to one of DNS.Servers when there are any: to DNS.Port
//  10. to an Outbound.Loopback address or an excluded prefix: left alone
//  11. to an included port: to Proxy.OutboundPort
//  12. to an included prefix: to Proxy.OutboundPort
//  13. anything else: left alone
//
// In TPROXY mode with an included inbound port, line 5 is about what goes to a passthrough address alone, as a validator's test does: the pod's
// other calls to itself through the proxy are decided where they come in, by the lines that stand above.
//
// Lines 6 to 12 are left out when nothing outbound is captured at all, each other one when its part of the Redirect is empty, or when
// excluded ports or prefixes above it leave nothing for it. Both families are treated alike, each by its own prefixes; without Facts.IPv6 the
// rules apply to IPv4 only.
//
// With DNS capture, queries over UDP that the application sends and those that the proxy sends are tracked in zones of their own, as
// both may come from the same address and port. With DropInvalid, TCP packets that connection tracking finds invalid are dropped.
//
// A Redirect that contradicts itself is refused with [ErrRedirect].
func Plan(r Redirect, f interception.Facts, owner interception.Owner) (*interception.Plan, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("plan sidecar: %w", err)
	}
	plan, err := interception.Build(owner, func(b *interception.Builder) {
		p := planner{Redirect: r, facts: f, builder: b, sets: map[interception.SetName]interception.SetRef{}}
		p.addresses()
		p.zones()
		p.transparent()
		p.inbound()
		p.outbound()
	})
	if err != nil || r.Existing != ExistingSpare {
		return plan, err
	}
	return plan.Sparing(), nil
}

// planner writes the plan; each method is a paragraph of what Plan documents, and writes nothing when there is no need for it.
type planner struct {
	Redirect
	facts   interception.Facts
	builder *interception.Builder
	sets    map[interception.SetName]interception.SetRef // those the plan has
}

// natChain is a chain of the nat table in the making.
type natChain = *interception.ChainRef[interception.NATAction]

// callsItself reports whether there is a proxy that can be known by its ids and takes inbound connections.
func (p planner) callsItself() bool {
	return p.Proxy.InboundPort != 0 && !(p.Proxy.UIDs.IsEmpty() && p.Proxy.GIDs.IsEmpty())
}

// reroutes reports whether some interface's packets are treated as outbound.
func (p planner) reroutes() bool { return !p.Interfaces.Reroute.IsEmpty() }

// addresses gives lo the sources that the proxy uses: 127.0.0.0/8 is there anyhow, of IPv6 only ::1.
func (p planner) addresses() {
	if !p.facts.IPv6 || !p.callsItself() {
		return
	}
	name := interception.RuleID("address.passthrough.v6")
	for i, address := range p.Proxy.passthroughAddresses() {
		if i > 0 {
			name = interception.RuleID(fmt.Sprintf("address.passthrough.v6.%d", i+1))
		}
		p.builder.Address(interception.Address{
			ID: name, Device: "lo", Prefix: netip.PrefixFrom(address, address.BitLen()),
			Why: "the proxy hands connections to the application from here",
		})
	}
}

// The sets of many prefixes, without their families.
const (
	includedSet interception.SetName = "outbound-include"
	excludedSet interception.SetName = "outbound-exclude"
)

// to matches packets to prefixes of one family: to a whole family by its name, to a few literally, to many by a set.
func (p planner) to(prefixes interception.PrefixSet, base interception.SetName, from []interception.Source) interception.Match {
	family := prefixes.Family()
	name := base + "-" + interception.SetName(family.String())
	switch {
	case prefixes.Equal(interception.AllPrefixes().Of(family)):
		return interception.Match{Family: family}
	case prefixes.Len() < setThreshold:
		return interception.Match{Dst: interception.Is(prefixes)}
	}
	set, found := p.sets[name]
	if !found {
		why := "excluded destinations"
		if base == includedSet {
			why = "included destinations"
		}
		set = p.builder.Set(name, prefixes, why, from...)
		p.sets[name] = set
	}
	return interception.Match{DstSet: interception.Is(set)}
}

// families are those the plan has rules for.
func (p planner) families() []interception.Family {
	if p.facts.IPv6 {
		return []interception.Family{interception.IPv4, interception.IPv6}
	}
	return []interception.Family{interception.IPv4}
}

// family narrows the hooks to the families the plan has rules for.
func (p planner) family() interception.Family {
	if p.facts.IPv6 {
		return interception.BothFamilies
	}
	return interception.IPv4
}

// id is the id of a rule's variant for one family.
func id(base interception.RuleID, family interception.Family) interception.RuleID {
	return base + "." + interception.RuleID(family.String())
}

// covers reports whether a part is in a set as a whole: what was left alone before needs no rule behind.
func covers[S interface {
	Union(other S) S
	Equal(other S) bool
}](set, part S,
) bool {
	return set.Union(part).Equal(set)
}

// tcpTo matches TCP to ports.
func tcpTo(ports interception.PortSet) interception.L4 { return to(interception.TCP(), ports) }

// to narrows l to ports, without a comparison when these are all.
func to(l interception.L4, ports interception.PortSet) interception.L4 {
	if ports.IsAll() {
		return l
	}
	return l.To(ports)
}
