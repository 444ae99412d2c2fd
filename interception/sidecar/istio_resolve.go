// SPDX-License-Identifier: Apache-2.0

package sidecar

import "github.com/meshcni/meshcni/interception"

// resolveIstio settles what Istio's parameters mean together.
func resolveIstio(r *Redirect) []interception.Warning {
	var warnings []interception.Warning
	// warn reports a parameter that somebody set to something and that does nothing.
	warn := func(parameter Parameter, isSet bool, reason string) {
		for _, source := range r.Sources[parameter] {
			if isSet && (source.Kind == interception.SourceAnnotation || source.Kind == interception.SourceEnv) {
				warnings = append(warnings, interception.Warning{Source: source, Reason: reason})
			}
		}
	}
	if r.Inbound.Include.IsAll() {
		r.Inbound.Exclude = r.Inbound.Exclude.Union(interception.Ports(istioAgentPort, istioHealthPort, istioPrometheusPort))
		r.Sources[ParameterInboundExclude] = append(r.Sources[ParameterInboundExclude],
			interception.Source{Kind: interception.SourceDialect, Key: "ports of agent, health and metrics", Value: "15020,15021,15090"})
	} else {
		warn(ParameterInboundExclude, !r.Inbound.Exclude.IsEmpty(),
			"it has no effect: includeInboundPorts lists the ports that are captured, and all others are left alone")
		r.Inbound.Exclude = interception.PortSet{}
		delete(r.Sources, ParameterInboundExclude)
	}
	warn(ParameterOutboundIncludePorts, !r.Outbound.IncludePorts.IsEmpty() && r.Outbound.Include.IsAll(),
		"it has no effect: includeOutboundIPRanges captures every port already")
	warn(ParameterOutboundExclude, !r.Outbound.Exclude.IsEmpty() && !r.capturesOutbound(),
		"it has no effect: no outbound traffic is captured")
	for _, source := range r.Sources[ParameterFamilies] {
		warn(ParameterFamilies, !isTrue(source.Value), "it has no effect: both IP families are captured wherever the pod has them")
	}
	return warnings
}
