// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// setThreshold is the number of prefixes from which on a rule refers to a named set. Shorter
// literal lists read better and cost the same.
const setThreshold = 8

// Plan returns the plan for a pod with a sidecar proxy. It is pure: the same redirect, facts and
// owner give the same plan.
//
// For a TCP connection to the pod, the first matching line decides:
//
//  1. older than the plan, with ExistingSpare: left alone
//  2. on a rerouted interface: as outbound line 12 says, else left alone
//  3. on an excluded interface: left alone
//  4. to the tunnel port: left alone
//  5. to an excluded inbound port: left alone
//  6. to an included inbound port: to Proxy.InboundPort
//  7. anything else: left alone
//
// In TPROXY mode the packet reaches the proxy unchanged, which adds rules. Before line 4, what the
// pod sends to itself is left alone, except for what the proxy sends from a source that is not a
// passthrough source and to an address that is not loopback. What the proxy sends from its clients'
// addresses carries the mark TProxy.Mark, by which replies return to it. After line 5, with an
// excluded or rerouted interface, replies are left alone: the pod may forward connections of such
// an interface, and their replies go to the side that opened the connection.
//
// For traffic from the pod (TCP, and UDP for DNS), likewise:
//
//  1. older than the plan, with ExistingSpare: left alone
//  2. on an excluded interface: left alone
//  3. to an excluded outbound port: left alone
//  4. over loopback from a passthrough source (the proxy calls the application): left alone
//  5. over loopback by the proxy's user or group, to an address that is not loopback (the pod calls
//     itself through the proxy), and not to the tunnel port nor, with DNS capture, to port 53: to
//     Proxy.InboundPort
//  6. over loopback by other users and groups: left alone, unless Outbound.CaptureLocal; with DNS
//     capture only TCP to ports other than 53
//  7. by the proxy's user or group: left alone
//  8. by a group that Outbound.Groups does not capture: left alone
//  9. to port 53, with DNS capture, to one of DNS.Servers if there are any: to DNS.Port
//  10. to an Outbound.Loopback address or an excluded prefix: left alone
//  11. to an included port: to Proxy.OutboundPort
//  12. to an included prefix: to Proxy.OutboundPort
//  13. anything else: left alone
//
// In TPROXY mode with an included inbound port, line 5 applies only to passthrough addresses, which
// a validator's test connects to. The inbound lines decide about the pod's other calls to itself
// through the proxy.
//
// Lines 6 to 12 are left out if nothing outbound is captured. Any line is left out if its part of
// the Redirect is empty, or if excluded ports or prefixes before it leave nothing for it. Both
// families are treated alike, each with its own prefixes; without Facts.IPv6 the rules apply to
// IPv4 only.
//
// With DNS capture, UDP queries of the application and of the proxy are tracked in separate zones,
// because both may come from the same address and port. With DropInvalid, TCP packets that
// connection tracking finds invalid are dropped.
//
// An error for a contradictory Redirect wraps [ErrRedirect].
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

// planner writes the plan. Each method writes one paragraph of Plan's documentation, or nothing.
type planner struct {
	Redirect
	facts   interception.Facts
	builder *interception.Builder
	sets    map[interception.SetName]interception.SetRef // the sets that the plan has
}

type natChain = *interception.ChainRef[interception.NATAction]

// callsItself reports whether the proxy has ids to recognise it by and takes inbound connections.
func (p planner) callsItself() bool {
	return p.Proxy.InboundPort != 0 && !(p.Proxy.UIDs.IsEmpty() && p.Proxy.GIDs.IsEmpty())
}

// reroutes reports whether packets of some interface are treated as outbound.
func (p planner) reroutes() bool { return !p.Interfaces.Reroute.IsEmpty() }

// addresses adds the proxy's IPv6 source addresses to lo, which has only ::1.
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

// The names of the sets of many prefixes, without the family.
const (
	includedSet interception.SetName = "outbound-include"
	excludedSet interception.SetName = "outbound-exclude"
)

// to matches one family's prefixes: all by the family, a few literally, many by a set.
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

// families returns the families that the plan has rules for.
func (p planner) families() []interception.Family {
	if p.facts.IPv6 {
		return []interception.Family{interception.IPv4, interception.IPv6}
	}
	return []interception.Family{interception.IPv4}
}

// family restricts the hooks to the families that the plan has rules for.
func (p planner) family() interception.Family {
	if p.facts.IPv6 {
		return interception.BothFamilies
	}
	return interception.IPv4
}

// id returns the id of a rule's variant for one family.
func id(base interception.RuleID, family interception.Family) interception.RuleID {
	return base + "." + interception.RuleID(family.String())
}

// covers reports whether set contains all of part, so that a later rule for part never applies.
func covers[S interface {
	Union(other S) S
	Equal(other S) bool
}](set, part S,
) bool {
	return set.Union(part).Equal(set)
}

// tcpTo matches TCP to ports.
func tcpTo(ports interception.PortSet) interception.L4 { return to(interception.TCP(), ports) }

// to narrows l to ports, without a comparison if these are all ports.
func to(l interception.L4, ports interception.PortSet) interception.L4 {
	if ports.IsAll() {
		return l
	}
	return l.To(ports)
}
