// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Redirect is what shall happen to a pod's traffic, in no mesh's words: which of it is captured, to which ports of the proxy, and
// by which identities the proxy is known. A [Dialect] makes it from a pod, or it is written by hand. The zero Redirect captures
// nothing. [Plan] states in which order its parts decide.
type Redirect struct {
	// Mode is how inbound connections reach the proxy.
	Mode Mode
	// Proxy is the proxy in the pod.
	Proxy Proxy
	// Inbound is about connections to the pod.
	Inbound Inbound
	// Outbound is about connections from the pod.
	Outbound Outbound
	// Interfaces are treated in a way of their own.
	Interfaces InterfacePolicy
	// DNS is about queries to port 53.
	DNS DNSCapture
	// TProxy are the numbers that ModeTProxy works with.
	TProxy TProxy
	// Existing says what becomes of the connections that are there already.
	Existing Existing
	// DropInvalid discards TCP packets that connection tracking finds invalid, before they can reset a connection. The end (FIN or RST) of
	// a connection that is older than the plan, and has been silent since, is invalid too.
	DropInvalid bool
	// Sources says for each parameter what its value came from; it becomes the provenance of rules and explains errors. Nil when
	// the Redirect was written by hand.
	Sources map[Parameter][]interception.Source
}

// Mode is how inbound connections reach the proxy.
type Mode uint8

// The modes.
const (
	// ModeRedirect translates the destination of the connection to the proxy's port. The proxy sees itself as the destination,
	// and asks the kernel for the original one.
	ModeRedirect Mode = iota
	// ModeTProxy hands the connection to the proxy's socket as it is, addresses and all.
	ModeTProxy
)

// String is "REDIRECT" or "TPROXY".
func (m Mode) String() string {
	switch m {
	case ModeRedirect:
		return "REDIRECT"
	case ModeTProxy:
		return "TPROXY"
	default:
		return fmt.Sprintf("mode %d", uint8(m))
	}
}

// Proxy describes the proxy that runs in the pod.
type Proxy struct {
	// UIDs and GIDs are the users and groups that the proxy runs as. Connections made by one of these users or one of these
	// groups are the proxy's own, and are not captured. One of the two must be there when outbound traffic is captured.
	UIDs interception.UIDSet
	GIDs interception.GIDSet
	// OutboundPort is where captured connections from the pod go.
	OutboundPort interception.Port
	// InboundPort is where captured connections to the pod go, and those of the proxy to the pod itself.
	InboundPort interception.Port
	// TunnelPort is where the proxy receives tunnelled connections, which are not to be captured again; 0 for none.
	TunnelPort interception.Port
	// PassthroughSources are the loopback addresses that the proxy uses as source when it hands a connection to the
	// application, so that this one isn't taken for the application's own. Those of IPv6 are given to lo, and are 16 at most in a row.
	PassthroughSources interception.PrefixSet
}

// shortestPassthrough is the length of the shortest IPv6 prefix of passthrough sources: each address in it is given to lo.
const shortestPassthrough = 124

// passthroughAddresses are the passthrough sources of IPv6, of which lo has only ::1 by itself.
func (p Proxy) passthroughAddresses() []netip.Addr {
	var addresses []netip.Addr
	for _, prefix := range p.PassthroughSources.Of(interception.IPv6).Prefixes() {
		for a := prefix.Addr(); prefix.Contains(a); a = a.Next() {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// manyPassthrough reports whether there are more passthrough sources of IPv6 than lo can be given.
func (p Proxy) manyPassthrough() bool {
	return slices.ContainsFunc(p.PassthroughSources.Of(interception.IPv6).Prefixes(), func(prefix netip.Prefix) bool {
		return prefix.Bits() < shortestPassthrough
	})
}

// Inbound says which connections to the pod are captured.
type Inbound struct {
	// Include are the destination ports that are captured.
	Include interception.PortSet
	// Exclude are the destination ports that are not, also when they are in Include.
	Exclude interception.PortSet
}

// Outbound says which connections from the pod are captured: TCP to an included prefix or an included port, unless something
// excludes it.
type Outbound struct {
	// Include are the destinations that are captured.
	Include interception.PrefixSet
	// Exclude are the destinations that are not, whatever includes them.
	Exclude interception.PrefixSet
	// IncludePorts are the destination ports that are captured whatever the destination, unless it is excluded.
	IncludePorts interception.PortSet
	// ExcludePorts are the destination ports that are not captured, whatever includes them.
	ExcludePorts interception.PortSet
	// Loopback are the destinations that stay within the pod: they are never captured.
	Loopback interception.PrefixSet
	// Groups narrows capture to the processes of some groups.
	Groups OwnerGroups
	// CaptureLocal captures also what the application sends to the pod's own addresses. Otherwise what stays on the loopback
	// interface is left alone, save the proxy's own calls.
	CaptureLocal bool
}

// OwnerGroups says whose outbound connections are captured, by the group of the process. The zero value: everybody's.
type OwnerGroups struct {
	// Limited captures those of Include only; with an empty Include, nobody's.
	Limited bool
	Include interception.GIDSet
	// Exclude are the groups whose connections are not captured.
	Exclude interception.GIDSet
}

// TProxy are the marks and routes by which ModeTProxy delivers packets that are not addressed to the pod. The namespace must have no
// other use for them.
type TProxy struct {
	// Mark is on packets that go to the proxy, and on those that the proxy sends in its clients' name.
	Mark interception.Mark
	// SelfMark is on packets by which the proxy calls the pod itself.
	SelfMark interception.Mark
	// Table is the routing table that delivers locally what has Mark, and Priority that of the policy rule which leads there.
	Table    interception.RoutingTable
	Priority uint32
}

// complete reports whether every number is there.
func (t TProxy) complete() bool {
	return t.Mark != 0 && t.SelfMark != 0 && t.Mark != t.SelfMark && t.Table != 0 && t.Priority != 0
}

// Existing is what becomes of TCP connections that are older than the plan. Connection tracking takes the first packet of theirs that
// it sees for a new connection, and redirecting it would reset them.
type Existing uint8

// The choices.
const (
	// ExistingCapture treats their packets like all others: right where nothing lives yet, as when a pod is made. In a pod that runs,
	// whoever speaks first behind the plan counts as the one who opens the connection, and the connection breaks when one like that is
	// captured: those that are captured when they are new, and those whose other side speaks first. A client's connection to an excluded
	// port breaks when the pod speaks first, the pod's own to an excluded destination when that one does, from its port to one of the
	// pod's that is not excluded. Those that stay within the pod live on.
	ExistingCapture Existing = iota
	// ExistingSpare leaves alone what does not open a connection: right for a pod that runs. All connections live on, whoever opened them
	// and whoever speaks first.
	ExistingSpare
)

// InterfacePolicy names interfaces that are not treated like the others.
type InterfacePolicy struct {
	// Exclude are the interfaces whose traffic is not captured.
	Exclude interception.InterfaceSet
	// Reroute are the interfaces of virtual machines in the pod: what comes by them is treated as outbound.
	Reroute interception.InterfaceSet
}

// DNSCapture says whether DNS queries go to the proxy.
type DNSCapture struct {
	// Port is where queries go, TCP and UDP; 0 captures none.
	Port interception.Port
	// Servers are the resolvers whose queries are captured; empty stands for all.
	Servers interception.PrefixSet
}

// Parameter names a part of a [Redirect], by the path of its field.
type Parameter string

// The parameters that a dialect can set.
const (
	ParameterMode                  Parameter = "Mode"
	ParameterProxyUIDs             Parameter = "Proxy.UIDs"
	ParameterProxyGIDs             Parameter = "Proxy.GIDs"
	ParameterInboundInclude        Parameter = "Inbound.Include"
	ParameterInboundExclude        Parameter = "Inbound.Exclude"
	ParameterOutboundInclude       Parameter = "Outbound.Include"
	ParameterOutboundExclude       Parameter = "Outbound.Exclude"
	ParameterOutboundIncludePorts  Parameter = "Outbound.IncludePorts"
	ParameterOutboundExcludePorts  Parameter = "Outbound.ExcludePorts"
	ParameterInterfacesExclude     Parameter = "Interfaces.Exclude"
	ParameterInterfacesReroute     Parameter = "Interfaces.Reroute"
	ParameterDNS                   Parameter = "DNS"
	ParameterDropInvalid           Parameter = "DropInvalid"
	ParameterFamilies              Parameter = "Families"
	ParameterOutboundGroupsInclude Parameter = "Outbound.Groups.Include"
	ParameterOutboundGroupsExclude Parameter = "Outbound.Groups.Exclude"
	ParameterOutboundLoopback      Parameter = "Outbound.Loopback"
)

// parameters are all that a dialect can set.
func parameters() []Parameter {
	return []Parameter{
		ParameterMode, ParameterProxyUIDs, ParameterProxyGIDs, ParameterInboundInclude, ParameterInboundExclude,
		ParameterOutboundInclude, ParameterOutboundExclude, ParameterOutboundIncludePorts, ParameterOutboundExcludePorts,
		ParameterInterfacesExclude, ParameterInterfacesReroute, ParameterDNS, ParameterDropInvalid, ParameterFamilies,
		ParameterOutboundGroupsInclude, ParameterOutboundGroupsExclude, ParameterOutboundLoopback,
	}
}

// sharedPort is a port that two of the proxy's listeners would have; 0 when each has its own.
func (r Redirect) sharedPort() interception.Port {
	ports := []interception.Port{r.Proxy.OutboundPort, r.Proxy.InboundPort, r.Proxy.TunnelPort, r.DNS.Port}
	for i, port := range ports {
		if port != 0 && slices.Contains(ports[:i], port) {
			return port
		}
	}
	return 0
}

// Validate reports everything that contradicts itself, joined; nil when nothing does. Each error wraps [ErrRedirect].
func (r Redirect) Validate() error {
	anonymous := r.Proxy.UIDs.IsEmpty() && r.Proxy.GIDs.IsEmpty()
	var errs []error
	for _, contradiction := range []struct {
		there bool
		says  string
	}{
		{r.Mode > ModeTProxy, "the mode is unknown: use ModeRedirect or ModeTProxy"},
		{r.Existing > ExistingSpare, "Existing is unknown: use ExistingCapture or ExistingSpare"},
		{
			!r.Inbound.Include.IsEmpty() && r.Proxy.InboundPort == 0,
			"inbound ports are captured, but Proxy.InboundPort is not set: name the port where the proxy takes them",
		},
		{
			r.capturesOutbound() && r.Proxy.OutboundPort == 0,
			"outbound traffic is captured, but Proxy.OutboundPort is not set: name the port where the proxy takes it",
		},
		{
			r.capturesOutbound() && anonymous,
			"outbound traffic is captured, but Proxy.UIDs and Proxy.GIDs are empty: connections of the proxy itself would come back to it",
		},
		{
			r.capturesDNS() && anonymous,
			"DNS is captured, but Proxy.UIDs and Proxy.GIDs are empty: queries of the proxy itself would come back to it",
		},
		{
			r.sharedPort() != 0,
			fmt.Sprintf("port %d has two uses: give Proxy.OutboundPort, InboundPort, TunnelPort and DNS.Port a listener each", r.sharedPort()),
		},
		{
			r.Proxy.manyPassthrough(),
			"Proxy.PassthroughSources has an IPv6 prefix shorter than /124: name the single addresses, each is given to lo",
		},
		{
			r.Mode == ModeTProxy && !r.TProxy.complete(),
			"TPROXY needs two different marks, a table and a priority: set Redirect.TProxy",
		},
	} {
		if contradiction.there {
			errs = append(errs, fmt.Errorf("%w: %s", ErrRedirect, contradiction.says))
		}
	}
	return errors.Join(errs...)
}

// capturesOutbound reports whether any connection from the pod is captured, DNS aside.
func (r Redirect) capturesOutbound() bool {
	return !r.Outbound.Include.IsEmpty() || !r.Outbound.IncludePorts.IsEmpty()
}

// capturesDNS reports whether queries are captured.
func (r Redirect) capturesDNS() bool { return r.DNS.Port != 0 }

// The errors that callers may want to tell apart, with errors.Is. What is wrong with a pod is an [interception.ParseError].
var (
	// ErrDialect means that a [Dialect] is refused: it is the mesh's mistake, and not the pod's.
	ErrDialect = errors.New("invalid dialect")
	// ErrRedirect means that a [Redirect] contradicts itself.
	ErrRedirect = errors.New("invalid redirect")
)
