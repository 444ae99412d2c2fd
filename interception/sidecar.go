// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
)

// setThreshold is the number of prefixes from which on a rule refers to a named set: up to there a literal list reads better, and
// costs the same.
const setThreshold = 8

// PlanSidecar makes the plan for a pod with a proxy of its own. It is pure: the same redirect, facts and owner give the same plan.
//
// A connection to the pod is decided by the first line that applies to it:
//
//  1. to the tunnel port: left alone
//  2. to an excluded inbound port: left alone
//  3. to an included inbound port: to Proxy.InboundPort
//  4. anything else, and what is not TCP: left alone
//
// A connection from the pod, likewise:
//
//  1. to an excluded outbound port: left alone
//  2. over loopback from a passthrough source, the proxy handing a connection to the application: left alone
//  3. over loopback by the proxy's user or group, to another address than loopback (the pod calling itself through the proxy) and
//     not to the tunnel port: to Proxy.InboundPort
//  4. over loopback by anybody else: left alone, unless Outbound.CaptureLocal
//  5. by the proxy's user or group: left alone
//  6. to an Outbound.Loopback address: left alone
//  7. to an excluded prefix: left alone
//  8. to an included port: to Proxy.OutboundPort
//  9. to an included prefix: to Proxy.OutboundPort
//  10. anything else, and what is not TCP: left alone
//
// Lines 4 to 10 are left out when no outbound traffic is captured at all. Both families are treated alike, each by its own
// prefixes; without Facts.IPv6 the rules apply to IPv4 only.
//
// A Redirect that contradicts itself is refused with [ErrRedirect], and one that asks for what this version does not have (TPROXY
// mode, DNS capture, interface policies, dropping of invalid packets) with [ErrUnsupported] and the name of it, because a plan
// without it would let traffic pass that was to be captured.
func PlanSidecar(r Redirect, f Facts, owner Owner) (*Plan, error) {
	if err := errors.Join(r.Validate(), r.unsupported()); err != nil {
		return nil, fmt.Errorf("plan sidecar: %w", err)
	}
	return Build(owner, func(b *Builder) {
		s := sidecar{Redirect: r, facts: f, builder: b}
		if !r.Inbound.Include.IsEmpty() {
			s.inbound(b.NAT("inbound"))
		}
		if r.capturesOutbound() || r.callsItself() {
			s.outbound(b.NAT("output"))
		}
	})
}

// unsupported names what PlanSidecar cannot plan yet.
func (r Redirect) unsupported() error {
	var errs []error
	for _, feature := range []struct {
		wanted    bool
		name      string
		parameter Parameter
	}{
		{r.Mode == ModeTProxy, "TPROXY mode", ParameterMode},
		{r.DNS.Port != 0, "DNS capture", ParameterDNS},
		{!r.Interfaces.Exclude.IsEmpty(), "excluding interfaces", ParameterInterfacesExclude},
		{!r.Interfaces.Reroute.IsEmpty(), "rerouting interfaces", ParameterInterfacesReroute},
		{r.DropInvalid, "dropping invalid packets", ParameterDropInvalid},
	} {
		if feature.wanted {
			errs = append(errs, fmt.Errorf("%s %v is %w by this version: take the setting away",
				feature.name, r.Sources[feature.parameter], ErrUnsupported))
		}
	}
	return errors.Join(errs...)
}

// callsItself reports whether there is a proxy that can be known by its ids and takes inbound connections.
func (r Redirect) callsItself() bool {
	return r.Proxy.InboundPort != 0 && !(r.Proxy.UIDs.IsEmpty() && r.Proxy.GIDs.IsEmpty())
}

// sidecar writes the rules; each method is a paragraph of the order that PlanSidecar documents.
type sidecar struct {
	Redirect
	facts   Facts
	builder *Builder
}

// natChain is a chain of the nat table in the making.
type natChain = *ChainRef[NATAction]

func (s sidecar) inbound(c natChain) {
	c.Entry(Prerouting, Match{Family: s.family(), L4: TCP()}, "connections to the pod")
	if s.Proxy.TunnelPort != 0 {
		c.Do("inbound.tunnel", Match{L4: TCP().To(Ports(s.Proxy.TunnelPort))}, Return{},
			"tunnelled connections are for the proxy already")
	}
	if !s.Inbound.Exclude.IsEmpty() {
		c.Do("inbound.exclude.ports", Match{L4: tcpTo(s.Inbound.Exclude)}, Return{},
			"excluded inbound ports", s.Sources[ParameterInboundExclude]...)
	}
	c.Do("inbound.capture", Match{L4: tcpTo(s.Inbound.Include)}, RedirectTo{s.Proxy.InboundPort},
		"inbound connections go to the proxy", s.Sources[ParameterInboundInclude]...)
}

func (s sidecar) outbound(c natChain) {
	c.Entry(Output, Match{Family: s.family(), L4: TCP()}, "connections from the pod")
	if !s.Outbound.ExcludePorts.IsEmpty() {
		c.Do("outbound.exclude.ports", Match{L4: tcpTo(s.Outbound.ExcludePorts)}, Return{},
			"excluded outbound ports", s.Sources[ParameterOutboundExcludePorts]...)
	}
	s.passthrough(c)
	if s.callsItself() {
		s.selfCalls(c)
	}
	if s.capturesOutbound() {
		s.bypasses(c)
		s.excludedPrefixes(c)
		s.captures(c)
	}
}

func (s sidecar) passthrough(c natChain) {
	for _, family := range s.families() {
		if sources := s.Proxy.PassthroughSources.Of(family); !sources.IsEmpty() {
			c.Do(id("outbound.passthrough", family), Match{Out: Is(Interfaces("lo")), Src: Is(sources)}, Return{},
				"the proxy hands a connection to the application")
		}
	}
}

// selfCalls sends what the proxy sends to the pod's own address to the inbound side.
func (s sidecar) selfCalls(c natChain) {
	l4 := TCP()
	if s.Proxy.TunnelPort != 0 {
		l4 = l4.NotTo(Ports(s.Proxy.TunnelPort))
	}
	for _, family := range s.families() {
		match := Match{Out: Is(Interfaces("lo")), L4: l4}
		if loopback := s.Outbound.Loopback.Of(family); loopback.IsEmpty() {
			match.Family = family
		} else {
			match.Dst = Not(loopback)
		}
		s.byProxy(c, id("outbound.self", family), match, RedirectTo{s.Proxy.InboundPort}, "the pod calls itself through the proxy")
	}
}

// bypasses leaves alone what is local, the proxy's own, or to loopback.
func (s sidecar) bypasses(c natChain) {
	if !s.Outbound.CaptureLocal {
		match := Match{Out: Is(Interfaces("lo"))}
		if !s.Proxy.UIDs.IsEmpty() {
			match.UID = Not(s.Proxy.UIDs)
		}
		if !s.Proxy.GIDs.IsEmpty() {
			match.GID = Not(s.Proxy.GIDs)
		}
		c.Do("outbound.local", match, Return{}, "what the application sends within the pod stays there")
	}
	s.byProxy(c, "outbound.proxy", Match{}, Return{}, "connections of the proxy itself are never captured")
	for _, family := range s.families() {
		if loopback := s.Outbound.Loopback.Of(family); !loopback.IsEmpty() {
			c.Do(id("outbound.loopback", family), Match{Dst: Is(loopback)}, Return{}, "loopback stays within the pod")
		}
	}
}

// byProxy writes a rule for the proxy's users and one for its groups.
func (s sidecar) byProxy(c natChain, base RuleID, match Match, action NATAction, why string) {
	if byUser := match; !s.Proxy.UIDs.IsEmpty() {
		byUser.UID = Is(s.Proxy.UIDs)
		c.Do(base+".uid", byUser, action, why, s.Sources[ParameterProxyUIDs]...)
	}
	if byGroup := match; !s.Proxy.GIDs.IsEmpty() {
		byGroup.GID = Is(s.Proxy.GIDs)
		c.Do(base+".gid", byGroup, action, why, s.Sources[ParameterProxyGIDs]...)
	}
}

func (s sidecar) excludedPrefixes(c natChain) {
	from := s.Sources[ParameterOutboundExclude]
	for _, family := range s.families() {
		if prefixes := s.Outbound.Exclude.Of(family); !prefixes.IsEmpty() {
			match := s.to(prefixes, "outbound-exclude", "excluded destinations", from)
			c.Do(id("outbound.exclude.prefixes", family), match, Return{}, "excluded destinations", from...)
		}
	}
}

func (s sidecar) captures(c natChain) {
	capture := RedirectTo{s.Proxy.OutboundPort}
	if !s.Outbound.IncludePorts.IsEmpty() {
		c.Do("outbound.capture.ports", Match{L4: tcpTo(s.Outbound.IncludePorts)}, capture,
			"connections to these ports go to the proxy", s.Sources[ParameterOutboundIncludePorts]...)
	}
	from := s.Sources[ParameterOutboundInclude]
	if s.Outbound.Include.IsAll() {
		c.Do("outbound.capture", Match{L4: TCP()}, capture, "all other connections go to the proxy", from...)
		return
	}
	for _, family := range s.families() {
		if prefixes := s.Outbound.Include.Of(family); !prefixes.IsEmpty() {
			match := s.to(prefixes, "outbound-include", "included destinations", from)
			match.L4 = TCP()
			c.Do(id("outbound.capture.prefixes", family), match, capture, "connections to these destinations go to the proxy", from...)
		}
	}
}

// to matches packets to prefixes of one family: to a whole family by its name, to a few literally, to many by a set.
func (s sidecar) to(prefixes PrefixSet, set SetName, why string, from []Source) Match {
	family := prefixes.Family()
	switch {
	case prefixes.Equal(AllPrefixes().Of(family)):
		return Match{Family: family}
	case prefixes.Len() < setThreshold:
		return Match{Dst: Is(prefixes)}
	default:
		return Match{DstSet: Is(s.builder.Set(set+"-"+SetName(family.String()), prefixes, why, from...))}
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

// tcpTo matches TCP to ports, without a comparison when these are all.
func tcpTo(ports PortSet) L4 {
	if ports.IsAll() {
		return TCP()
	}
	return TCP().To(ports)
}
