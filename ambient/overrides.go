// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"github.com/meshcni/meshcni/interception"
)

// Overrides are what a pod asks for. [PodPlan] gives them their meaning. The zero value captures
// nothing; start from [DefaultOverrides].
type Overrides struct {
	// BypassInbound leaves all connections to the pod alone, for a pod that takes them itself, such
	// as an ingress gateway.
	BypassInbound bool
	// DNS captures the pod's queries.
	DNS bool
	// Reroute are interfaces to virtual machines or nested containers in the pod. Connections that
	// come from there are treated as the pod's own. Packets on the Exclude interfaces are left alone.
	Reroute, Exclude interception.InterfaceSet
	// Inbound are the ports of the pod that are captured.
	Inbound Ports
	// Outbound are the ports that are captured whatever the destination, and the ports that are
	// never captured.
	Outbound Ports
	// Destinations are the prefixes that are captured on all ports, and ExcludeDestinations are
	// never captured.
	Destinations, ExcludeDestinations interception.PrefixSet
	// Sources is the provenance of each parameter.
	Sources map[Parameter][]interception.Source
}

// Ports are the ports that are captured, and those that are not although the former name them.
type Ports struct {
	Include, Exclude interception.PortSet
}

// Parameter names a part of [Overrides]. The texts are stable.
type Parameter string

// The parameters.
const (
	ParameterBypassInbound        Parameter = "inbound.bypass"
	ParameterDNS                  Parameter = "dns"
	ParameterReroute              Parameter = "interfaces.reroute"
	ParameterExcludeInterfaces    Parameter = "interfaces.exclude"
	ParameterInboundInclude       Parameter = "inbound.include"
	ParameterInboundExclude       Parameter = "inbound.exclude"
	ParameterOutboundInclude      Parameter = "outbound.include"
	ParameterOutboundExclude      Parameter = "outbound.exclude"
	ParameterOutboundIncludePorts Parameter = "outbound.include-ports"
	ParameterOutboundExcludePorts Parameter = "outbound.exclude-ports"
)

// DefaultOverrides returns what holds for a pod that asks for nothing: all connections are
// captured, in both directions, and queries if dns is true.
func DefaultOverrides(dns bool) Overrides {
	return Overrides{
		DNS:          dns,
		Inbound:      Ports{Include: interception.AllPorts()},
		Destinations: interception.AllPrefixes(),
	}
}
