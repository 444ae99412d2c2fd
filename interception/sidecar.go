// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"fmt"
	"net/netip"
)

// setThreshold is the number of prefixes from which on a rule refers to a named set: up to there a literal list reads better, and
// costs the same.
const setThreshold = 8

// PlanSidecar makes the plan for a pod with a proxy of its own. It is pure: the same redirect, facts and owner give the same plan.
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
func PlanSidecar(r Redirect, f Facts, owner Owner) (*Plan, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("plan sidecar: %w", err)
	}
	return Build(owner, func(b *Builder) {
		s := sidecar{Redirect: r, facts: f, builder: b}
		s.addresses()
		s.zones()
		s.transparent()
		s.inbound()
		s.outbound()
	})
}

// sidecar writes the plan; each method is a paragraph of what PlanSidecar documents, and writes nothing when there is no need for it.
type sidecar struct {
	Redirect
	facts   Facts
	builder *Builder
}

// natChain is a chain of the nat table in the making.
type natChain = *ChainRef[NATAction]

// callsItself reports whether there is a proxy that can be known by its ids and takes inbound connections.
func (s sidecar) callsItself() bool {
	return s.Proxy.InboundPort != 0 && !(s.Proxy.UIDs.IsEmpty() && s.Proxy.GIDs.IsEmpty())
}

// reroutes reports whether some interface's packets are treated as outbound.
func (s sidecar) reroutes() bool { return !s.Interfaces.Reroute.IsEmpty() }

// addresses gives lo the sources that the proxy uses: 127.0.0.0/8 is there anyhow, of IPv6 only ::1.
func (s sidecar) addresses() {
	if !s.facts.IPv6 || !s.callsItself() {
		return
	}
	name := RuleID("address.passthrough.v6")
	for i, address := range s.Proxy.passthroughAddresses() {
		if i > 0 {
			name = RuleID(fmt.Sprintf("address.passthrough.v6.%d", i+1))
		}
		s.builder.Address(Address{
			ID: name, Device: "lo", Prefix: netip.PrefixFrom(address, address.BitLen()),
			Why: "the proxy hands connections to the application from here",
		})
	}
}

// The sets of many prefixes, without their families.
const (
	includedSet SetName = "outbound-include"
	excludedSet SetName = "outbound-exclude"
)

// to matches packets to prefixes of one family: to a whole family by its name, to a few literally, to many by a set.
func (s sidecar) to(prefixes PrefixSet, base SetName, from []Source) Match {
	family := prefixes.Family()
	name := base + "-" + SetName(family.String())
	switch {
	case prefixes.Equal(AllPrefixes().Of(family)):
		return Match{Family: family}
	case prefixes.Len() < setThreshold:
		return Match{Dst: Is(prefixes)}
	case s.builder.hasSet(name):
		return Match{DstSet: Is(SetRef{name, family})}
	case base == includedSet:
		return Match{DstSet: Is(s.builder.Set(name, prefixes, "included destinations", from...))}
	default:
		return Match{DstSet: Is(s.builder.Set(name, prefixes, "excluded destinations", from...))}
	}
}

// families are those the plan has rules for.
func (s sidecar) families() []Family {
	if s.facts.IPv6 {
		return []Family{IPv4, IPv6}
	}
	return []Family{IPv4}
}

// family narrows the hooks to the families the plan has rules for.
func (s sidecar) family() Family {
	if s.facts.IPv6 {
		return BothFamilies
	}
	return IPv4
}

// id is the id of a rule's variant for one family.
func id(base RuleID, family Family) RuleID { return base + "." + RuleID(family.String()) }

// covers reports whether a part is in a set as a whole: what was left alone before needs no rule behind.
func covers[S interface {
	Union(other S) S
	Equal(other S) bool
}](set, part S,
) bool {
	return set.Union(part).Equal(set)
}

// tcpTo matches TCP to ports.
func tcpTo(ports PortSet) L4 { return to(TCP(), ports) }

// to narrows l to ports, without a comparison when these are all.
func to(l L4, ports PortSet) L4 {
	if ports.IsAll() {
		return l
	}
	return l.To(ports)
}
