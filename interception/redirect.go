// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
)

// Redirect is what shall happen to a pod's traffic, in no mesh's words: which of it is captured, to which ports of the proxy, and
// by which identities the proxy is known. A [Dialect] makes it from a pod, or it is written by hand. The zero Redirect captures
// nothing. [PlanSidecar] states in which order its parts decide.
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
	// DropInvalid discards TCP packets that connection tracking finds invalid, before they can reset a connection.
	DropInvalid bool
	// Sources says for each parameter what its value came from; it becomes the provenance of rules and explains errors. Nil when
	// the Redirect was written by hand.
	Sources map[Parameter][]Source
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
	UIDs UIDSet
	GIDs GIDSet
	// OutboundPort is where captured connections from the pod go.
	OutboundPort Port
	// InboundPort is where captured connections to the pod go, and those of the proxy to the pod itself.
	InboundPort Port
	// TunnelPort is where the proxy receives tunnelled connections, which are not to be captured again; 0 for none.
	TunnelPort Port
	// PassthroughSources are the loopback addresses that the proxy uses as source when it hands a connection to the
	// application, so that this one isn't taken for the application's own.
	PassthroughSources PrefixSet
}

// Inbound says which connections to the pod are captured.
type Inbound struct {
	// Include are the destination ports that are captured.
	Include PortSet
	// Exclude are the destination ports that are not, also when they are in Include.
	Exclude PortSet
}

// Outbound says which connections from the pod are captured: TCP to an included prefix or an included port, unless something
// excludes it.
type Outbound struct {
	// Include are the destinations that are captured.
	Include PrefixSet
	// Exclude are the destinations that are not, whatever includes them.
	Exclude PrefixSet
	// IncludePorts are the destination ports that are captured whatever the destination, unless it is excluded.
	IncludePorts PortSet
	// ExcludePorts are the destination ports that are not captured, whatever includes them.
	ExcludePorts PortSet
	// Loopback are the destinations that stay within the pod: they are never captured.
	Loopback PrefixSet
	// CaptureLocal captures also what the application sends to the pod's own addresses. Otherwise what stays on the loopback
	// interface is left alone, save the proxy's own calls.
	CaptureLocal bool
}

// InterfacePolicy names interfaces that are not treated like the others.
type InterfacePolicy struct {
	// Exclude are the interfaces whose traffic is not captured.
	Exclude InterfaceSet
	// Reroute are the interfaces of virtual machines in the pod: what comes by them is treated as outbound.
	Reroute InterfaceSet
}

// DNSCapture says whether DNS queries go to the proxy.
type DNSCapture struct {
	// Port is where queries go, TCP and UDP; 0 captures none.
	Port Port
}

// Parameter names a part of a [Redirect], by the path of its field.
type Parameter string

// The parameters that a dialect can set.
const (
	ParameterMode                 Parameter = "Mode"
	ParameterProxyUIDs            Parameter = "Proxy.UIDs"
	ParameterProxyGIDs            Parameter = "Proxy.GIDs"
	ParameterInboundInclude       Parameter = "Inbound.Include"
	ParameterInboundExclude       Parameter = "Inbound.Exclude"
	ParameterOutboundInclude      Parameter = "Outbound.Include"
	ParameterOutboundExclude      Parameter = "Outbound.Exclude"
	ParameterOutboundIncludePorts Parameter = "Outbound.IncludePorts"
	ParameterOutboundExcludePorts Parameter = "Outbound.ExcludePorts"
	ParameterInterfacesExclude    Parameter = "Interfaces.Exclude"
	ParameterInterfacesReroute    Parameter = "Interfaces.Reroute"
	ParameterDNS                  Parameter = "DNS"
	ParameterDropInvalid          Parameter = "DropInvalid"
	ParameterFamilies             Parameter = "Families"
)

// Validate reports everything that contradicts itself, joined; nil when nothing does. Each error wraps [ErrRedirect].
func (r Redirect) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrRedirect}, args...)...))
	}
	if r.Mode > ModeTProxy {
		refuse("%v is unknown: use ModeRedirect or ModeTProxy", r.Mode)
	}
	if !r.Inbound.Include.IsEmpty() && r.Proxy.InboundPort == 0 {
		refuse("inbound ports %s are captured, but Proxy.InboundPort is not set: name the port where the proxy takes them", r.Inbound.Include)
	}
	if r.capturesOutbound() {
		if r.Proxy.OutboundPort == 0 {
			refuse("outbound traffic is captured, but Proxy.OutboundPort is not set: name the port where the proxy takes it")
		}
		if r.Proxy.UIDs.IsEmpty() && r.Proxy.GIDs.IsEmpty() {
			refuse("outbound traffic is captured, but Proxy.UIDs and Proxy.GIDs are empty: the proxy's own connections would come back to it")
		}
	}
	return errors.Join(errs...)
}

// capturesOutbound reports whether any connection from the pod is captured.
func (r Redirect) capturesOutbound() bool {
	return !r.Outbound.Include.IsEmpty() || !r.Outbound.IncludePorts.IsEmpty()
}
