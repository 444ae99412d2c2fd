// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// includesNothing reports whether the redirect names no connection and no query for capture.
func (r Redirect) includesNothing() bool {
	return r.Inbound.Include.IsEmpty() && !r.capturesOutbound() && !r.capturesDNS()
}

// leavesAllAlone reports whether no connection and no query can reach the proxy, because the
// redirect names none for capture or excludes all of them.
func (r Redirect) leavesAllAlone() bool {
	return !r.capturesSomeInbound() && !r.capturesSomeOutbound() && !r.capturesSomeRerouted()
}

// capturesSomeInbound reports whether a port is included and not excluded.
func (r Redirect) capturesSomeInbound() bool { return !covers(r.Inbound.Exclude, r.Inbound.Include) }

func (r Redirect) capturesSomeOutbound() bool {
	o := r.Outbound
	if o.ExcludePorts.IsAll() || o.Groups.Limited && o.Groups.Include.IsEmpty() {
		return false
	}
	excluded := o.Exclude.Union(o.Loopback)
	return r.capturesDNS() || !covers(excluded, o.Include) || !covers(o.ExcludePorts, o.IncludePorts) && !excluded.IsAll()
}

// capturesSomeRerouted is for the interfaces of virtual machines, which ignore exclusions.
func (r Redirect) capturesSomeRerouted() bool {
	return !r.Interfaces.Reroute.IsEmpty() && !r.Outbound.Include.IsEmpty()
}

// isAsked reports whether the pod set a parameter that can leave all of its traffic alone.
func (r Redirect) isAsked() bool {
	decisive := includes()
	if !r.Inbound.Include.IsEmpty() {
		decisive = append(decisive, ParameterInboundExclude)
	}
	if r.capturesOutbound() || r.capturesDNS() {
		decisive = append(decisive, ParameterOutboundExclude, ParameterOutboundExcludePorts, ParameterOutboundGroupsInclude)
	}
	return slices.ContainsFunc(decisive, func(p Parameter) bool { return slices.ContainsFunc(r.Sources[p], isOfPod) })
}

// includes returns the parameters that name connections for capture.
func includes() []Parameter {
	return []Parameter{ParameterInboundInclude, ParameterOutboundInclude, ParameterOutboundIncludePorts}
}

// isOfPod reports whether a value comes from the pod.
func isOfPod(s interception.Source) bool {
	return s.Kind != interception.SourceDefault && s.Kind != interception.SourceDialect
}

// baseMistake returns an error for a dialect that can capture no pod's traffic. It accepts any
// dialect with Resolve, whose effect depends on the pod.
func (d Dialect) baseMistake() error {
	names := append(includes(), ParameterDNS)
	if !d.Base.includesNothing() || d.Resolve != nil ||
		slices.ContainsFunc(d.Fields, func(f Field) bool { return slices.Contains(names, f.Parameter) }) {
		return nil
	}
	return fmt.Errorf("%w: Base includes no traffic and no Field sets an include, so the proxy of a captured pod would get none: "+
		"set Base.Inbound.Include or Base.Outbound.Include", ErrDialect)
}

// membershipMistake returns an error for a Membership that includes every pod, or that tests a
// proxy container without naming it.
func (d Dialect) membershipMistake() error {
	m := d.Membership
	switch {
	case m == Membership{}:
		return fmt.Errorf("%w: the dialect has no Membership: no pod would be captured", ErrDialect)
	case m.ProxyContainer == "" && (m.DisableEnv != "" || m.ProxyCommand != "" || m.ProxyType != ""):
		return fmt.Errorf("%w: Membership has DisableEnv, ProxyCommand or ProxyType, which are about the proxy's container: "+
			"name that in ProxyContainer", ErrDialect)
	case m.ProxyContainer == "" && m.InjectedAnnotation == "":
		return fmt.Errorf("%w: Membership has neither ProxyContainer nor InjectedAnnotation: every pod of the node would be captured, "+
			"with a proxy or without; set one of them", ErrDialect)
	}
	return nil
}
