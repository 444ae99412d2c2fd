// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Redirect describes the capture of a pod's traffic independently of a mesh: the traffic to
// capture, the proxy's ports, and the identities of the proxy. [Dialect.Parse] makes it from a pod;
// a program can also write it by hand. The zero Redirect captures nothing. [Plan] documents the
// order in which its parts decide.
type Redirect struct {
	// Mode is how inbound connections reach the proxy.
	Mode Mode
	// Proxy describes the sidecar proxy.
	Proxy Proxy
	// Inbound selects connections to the pod.
	Inbound Inbound
	// Outbound selects connections from the pod.
	Outbound Outbound
	// Interfaces lists the interfaces with special treatment.
	Interfaces InterfacePolicy
	// DNS selects queries to port 53.
	DNS DNSCapture
	// TProxy has the marks and routing numbers for ModeTProxy.
	TProxy TProxy
	// Existing is the treatment of connections that are older than the plan.
	Existing Existing
	// DropInvalid drops TCP packets that connection tracking finds invalid, before they reset a
	// connection. The FIN or RST of one that has been silent since before the plan is invalid, too.
	DropInvalid bool
	// Sources are the origins of each parameter's value. They become the provenance of rules and
	// explain errors. Nil for a Redirect written by hand.
	Sources map[Parameter][]interception.Source
}

// Mode is how inbound connections reach the proxy.
type Mode uint8

// The modes.
const (
	// ModeRedirect rewrites the connection's destination to the proxy's port. The proxy sees itself
	// as the destination and asks the kernel for the original one.
	ModeRedirect Mode = iota
	// ModeTProxy hands the connection to the proxy's socket with its addresses unchanged.
	ModeTProxy
)

// String returns "REDIRECT" or "TPROXY".
func (m Mode) String() string {
	return cmp.Or(map[Mode]string{ModeRedirect: "REDIRECT", ModeTProxy: "TPROXY"}[m], fmt.Sprintf("mode %d", uint8(m)))
}

// Proxy describes the sidecar proxy in the pod.
type Proxy struct {
	// UIDs and GIDs are the users and groups that the proxy runs as. A connection of one of these
	// users or groups is the proxy's own and is not captured. One of the two must be set when
	// outbound traffic is captured, and neither may have every id.
	UIDs interception.UIDSet
	GIDs interception.GIDSet
	// OutboundPort receives captured connections from the pod.
	OutboundPort interception.Port
	// InboundPort receives captured connections to the pod, including the proxy's.
	InboundPort interception.Port
	// TunnelPort receives tunnelled connections, which are not captured again; 0 for no port.
	TunnelPort interception.Port
	// PassthroughSources are the loopback addresses from which the proxy connects to the
	// application, so that its connections are not taken for the application's own. The plan adds
	// those of IPv6 to lo; an IPv6 prefix may hold at most 16.
	PassthroughSources interception.PrefixSet
}

// shortestPassthrough is the shortest IPv6 prefix whose addresses are all added to lo.
const shortestPassthrough = 124

// passthroughAddresses returns the IPv6 passthrough sources. Of these lo has only ::1 by default.
func (p Proxy) passthroughAddresses() []netip.Addr {
	var addresses []netip.Addr
	for _, prefix := range p.PassthroughSources.Of(interception.IPv6).Prefixes() {
		for a := prefix.Addr(); prefix.Contains(a); a = a.Next() {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// everybody reports whether all users or all groups count as the proxy.
func (p Proxy) everybody() bool { return p.UIDs.IsAll() || p.GIDs.IsAll() }

// manyPassthrough reports whether there are more IPv6 passthrough sources than a plan adds to lo.
func (p Proxy) manyPassthrough() bool {
	return slices.ContainsFunc(p.PassthroughSources.Of(interception.IPv6).Prefixes(), func(prefix netip.Prefix) bool {
		return prefix.Bits() < shortestPassthrough
	})
}

// Inbound selects the connections to the pod that are captured.
type Inbound struct {
	// Include are the destination ports to capture.
	Include interception.PortSet
	// Exclude are the destination ports to leave alone, even if Include has them.
	Exclude interception.PortSet
}

// Outbound selects the TCP connections from the pod that are captured.
type Outbound struct {
	// Include are the destinations to capture.
	Include interception.PrefixSet
	// Exclude are the destinations to leave alone, whatever includes them.
	Exclude interception.PrefixSet
	// IncludePorts are the destination ports to capture for every destination that is not excluded.
	IncludePorts interception.PortSet
	// ExcludePorts are the destination ports to leave alone, whatever includes them.
	ExcludePorts interception.PortSet
	// Loopback are the destinations within the pod, which are never captured.
	Loopback interception.PrefixSet
	// Groups restricts capture to the processes of some groups.
	Groups OwnerGroups
	// CaptureLocal also captures what the application sends to the pod's own addresses. Without it,
	// traffic on the loopback interface is left alone, except for the proxy's own calls.
	CaptureLocal bool
}

// OwnerGroups selects outbound connections by the group of the process. The zero value selects all.
type OwnerGroups struct {
	// Limited captures the groups in Include only, and nothing if Include is empty.
	Limited bool
	Include interception.GIDSet
	// Exclude are the groups to leave alone.
	Exclude interception.GIDSet
}

// TProxy has the marks and the route by which ModeTProxy delivers packets that are not addressed to
// the pod. No other program in the namespace may use the same numbers.
type TProxy struct {
	// Mark marks packets to the proxy, and those that it sends from its clients' addresses.
	Mark interception.Mark
	// SelfMark marks packets with which the proxy calls the pod itself.
	SelfMark interception.Mark
	// Table delivers packets with Mark locally. Priority is that of its policy rule.
	Table    interception.RoutingTable
	Priority uint32
}

// complete reports whether every number is set.
func (t TProxy) complete() bool {
	return t.Mark != 0 && t.SelfMark != 0 && t.Mark != t.SelfMark && t.Table != 0 && t.Priority != 0
}

// Existing is the treatment of TCP connections older than the plan. Connection tracking takes the
// first packet that it sees of one for a new connection; a redirect would reset it.
type Existing uint8

// The treatments of existing connections.
const (
	// ExistingCapture treats their packets like all others. It is right where no connections exist
	// yet, as when a pod is created. In a running pod, the side that sends first after the plan
	// counts as the one that opened the connection; the connection breaks if the plan captures new
	// connections in that direction. Even an excluded connection can break: a client's connection
	// to an excluded port when the pod sends first, and the pod's connection to an excluded
	// destination when the destination sends first, to a port of the pod that is not excluded.
	// Connections within the pod survive.
	ExistingCapture Existing = iota
	// ExistingSpare leaves alone packets that do not open a connection. It is right for a running
	// pod: all connections survive, whichever side opened them and whichever sends first.
	ExistingSpare
)

// InterfacePolicy names interfaces with special treatment.
type InterfacePolicy struct {
	// Exclude are the interfaces whose traffic is not captured.
	Exclude interception.InterfaceSet
	// Reroute are interfaces of virtual machines in the pod. Their traffic is outbound.
	Reroute interception.InterfaceSet
}

// DNSCapture selects the DNS queries that go to the proxy.
type DNSCapture struct {
	// Port receives the queries, TCP and UDP; 0 captures none.
	Port interception.Port
	// Servers are the resolvers whose queries are captured. Empty means all resolvers.
	Servers interception.PrefixSet
}

// Parameter names a part of a [Redirect] by the path of its field.
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

// parameters returns all parameters that a dialect can set.
func parameters() []Parameter {
	return []Parameter{
		ParameterMode, ParameterProxyUIDs, ParameterProxyGIDs, ParameterInboundInclude, ParameterInboundExclude,
		ParameterOutboundInclude, ParameterOutboundExclude, ParameterOutboundIncludePorts, ParameterOutboundExcludePorts,
		ParameterInterfacesExclude, ParameterInterfacesReroute, ParameterDNS, ParameterDropInvalid, ParameterFamilies,
		ParameterOutboundGroupsInclude, ParameterOutboundGroupsExclude, ParameterOutboundLoopback,
	}
}

// sharedPort returns a port that two of the proxy's listeners share, or 0.
func (r Redirect) sharedPort() interception.Port {
	ports := []interception.Port{r.Proxy.OutboundPort, r.Proxy.InboundPort, r.Proxy.TunnelPort, r.DNS.Port}
	for i, port := range ports {
		if port != 0 && slices.Contains(ports[:i], port) {
			return port
		}
	}
	return 0
}

// Validate returns every contradiction, joined, or nil. Each error wraps [ErrRedirect].
func (r Redirect) Validate() error {
	anonymous := r.Proxy.UIDs.IsEmpty() && r.Proxy.GIDs.IsEmpty()
	var errs []error
	for _, contradiction := range []struct {
		there bool
		says  string
	}{
		{r.Mode > ModeTProxy, fmt.Sprintf("%s is unknown: use ModeRedirect or ModeTProxy", r.Mode)},
		{r.Existing > ExistingSpare, fmt.Sprintf("Existing %d is unknown: use ExistingCapture or ExistingSpare", r.Existing)},
		{
			r.Proxy.everybody() && (r.capturesOutbound() || r.capturesDNS()),
			"Proxy.UIDs or Proxy.GIDs has every id: all traffic would be the proxy's own, and none captured",
		},
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

// The errors to distinguish with errors.Is. A mistake in a pod is an [interception.ParseError].
var (
	// ErrDialect means that a [Dialect] is refused: the mistake is the mesh's, not the pod's.
	ErrDialect = errors.New("invalid dialect")
	// ErrRedirect means that a [Redirect] contradicts itself.
	ErrRedirect = errors.New("invalid redirect")
)
