// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Istio's fixed ports and its proxy's default id. See https://istio.io/latest/docs/ops/deployment/application-requirements/.
const (
	istioOutboundPort interception.Port = 15001
	istioInboundPort  interception.Port = 15006
	istioTunnelPort   interception.Port = 15008
	istioDNSPort      interception.Port = 15053
	istioProxyID                        = 1337

	istioTProxyMark     interception.Mark         = 1337
	istioSelfMark       interception.Mark         = 1338
	istioTProxyTable    interception.RoutingTable = 133
	istioTProxyPriority                           = 1337 // Istio leaves the choice to the kernel

	istioAgentPort      interception.Port = 15020 // merged metrics and health of the agent
	istioHealthPort     interception.Port = 15021
	istioPrometheusPort interception.Port = 15090

	istioTrafficPrefix = "traffic.sidecar.istio.io/"
)

// Istio is the vocabulary of Istio's sidecars (https://istio.io/latest/docs/reference/config/annotations/).
//
// Where the words of Istio's own plugin and what they do there differ, this dialect does what the words say:
//
//   - Blanks in lists are ignored, and "*" stands for all ports wherever ports are listed, also where they are excluded.
//   - An explicit list of inbound ports makes the inbound exclusions void, as in Istio; exclusions that are then void are reported.
//   - The proxy's ids are those it really runs as: its container's securityContext, else the pod's. 0 stands for 1337, as in Istio.
//   - Both IP families are captured wherever the pod has them, whether ISTIO_DUAL_STACK is set or not.
//   - The owner groups and the loopback prefix, which Istio's plugin reads from its own environment, are read from the variables of the
//     proxy container. Groups are numbers: the node's names say nothing about a pod.
//   - A key below traffic.sidecar.istio.io/ that nobody reads is reported.
func Istio() Dialect {
	return Dialect{
		Name: "istio",
		Membership: Membership{
			ProxyContainer: "istio-proxy", RuleContainer: "istio-init", DisableEnv: "DISABLE_ENVOY",
			ProxyCommand: "proxy", ProxyType: "sidecar",
			OptOut: "sidecar.istio.io/inject", InjectedAnnotation: "sidecar.istio.io/status",
		},
		Base: Redirect{
			Proxy: Proxy{
				OutboundPort: istioOutboundPort, InboundPort: istioInboundPort, TunnelPort: istioTunnelPort,
				PassthroughSources: interception.Prefixes(netip.MustParsePrefix("127.0.0.6/32"), netip.MustParsePrefix("::6/128")),
			},
			TProxy: TProxy{Mark: istioTProxyMark, SelfMark: istioSelfMark, Table: istioTProxyTable, Priority: istioTProxyPriority},
			Outbound: Outbound{
				Loopback: interception.Prefixes(netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")),
			},
		},
		Fields:   istioFields(),
		Prefixes: []string{istioTrafficPrefix},
		Ignored: []IgnoredKey{{
			Kind: interception.SourceAnnotation, Key: "status.sidecar.istio.io/port",
			Reason: "it has no effect on interception: list the port in traffic.sidecar.istio.io/excludeInboundPorts",
		}},
		Resolve: resolveIstio,
	}
}

func istioFields() []Field {
	annotation := func(parameter Parameter, value string, set func(*Redirect, string) error, keys ...string) Field {
		return Field{Parameter: parameter, Kind: interception.SourceAnnotation, Keys: keys, Default: value, Set: set}
	}
	env := func(parameter Parameter, key string, set func(r *Redirect, on bool)) Field {
		return Field{Parameter: parameter, Kind: interception.SourceEnv, Keys: []string{key}, Default: "false", Set: setBool(set), Lenient: true}
	}
	id := func(parameter Parameter, key string, set func(r *Redirect, id uint32)) Field {
		return Field{Parameter: parameter, Kind: interception.SourceField, Keys: []string{key}, Default: strconv.Itoa(istioProxyID), Set: setID(set)}
	}
	return []Field{
		annotation(ParameterMode, "REDIRECT", setMode, "sidecar.istio.io/interceptionMode"),
		annotation(ParameterOutboundInclude, "*", setOutboundInclude, istioTrafficPrefix+"includeOutboundIPRanges"),
		annotation(ParameterOutboundExclude, "", setOutboundExclude, istioTrafficPrefix+"excludeOutboundIPRanges"),
		annotation(ParameterInboundInclude, "*",
			setPorts(func(r *Redirect) *interception.PortSet { return &r.Inbound.Include }), istioTrafficPrefix+"includeInboundPorts"),
		annotation(ParameterInboundExclude, "15020",
			setPorts(func(r *Redirect) *interception.PortSet { return &r.Inbound.Exclude }), istioTrafficPrefix+"excludeInboundPorts"),
		annotation(ParameterOutboundIncludePorts, "",
			setPorts(func(r *Redirect) *interception.PortSet { return &r.Outbound.IncludePorts }), istioTrafficPrefix+"includeOutboundPorts"),
		annotation(ParameterOutboundExcludePorts, "15020",
			setPorts(func(r *Redirect) *interception.PortSet { return &r.Outbound.ExcludePorts }), istioTrafficPrefix+"excludeOutboundPorts"),
		annotation(ParameterInterfacesExclude, "",
			setInterfaces(func(r *Redirect) *interception.InterfaceSet { return &r.Interfaces.Exclude }), istioTrafficPrefix+"excludeInterfaces"),
		annotation(ParameterInterfacesReroute, "",
			setInterfaces(func(r *Redirect) *interception.InterfaceSet { return &r.Interfaces.Reroute }),
			"istio.io/reroute-virtual-interfaces", istioTrafficPrefix+"kubevirtInterfaces"),
		id(ParameterProxyUIDs, "runAsUser", func(r *Redirect, id uint32) { r.Proxy.UIDs = interception.UIDs(interception.UID(id)) }),
		id(ParameterProxyGIDs, "runAsGroup", func(r *Redirect, id uint32) { r.Proxy.GIDs = interception.GIDs(interception.GID(id)) }),
		env(ParameterDNS, "ISTIO_META_DNS_CAPTURE", func(r *Redirect, on bool) {
			if on {
				r.DNS.Port = istioDNSPort
			}
		}),
		env(ParameterDropInvalid, "INVALID_DROP", func(r *Redirect, on bool) { r.DropInvalid = on }),
		env(ParameterFamilies, "ISTIO_DUAL_STACK", func(*Redirect, bool) {}),
		{
			Parameter: ParameterOutboundGroupsInclude, Kind: interception.SourceEnv, Keys: []string{"ISTIO_OUTBOUND_OWNER_GROUPS"},
			Default: "*", Set: setGroupsInclude,
		},
		{
			Parameter: ParameterOutboundGroupsExclude, Kind: interception.SourceEnv, Keys: []string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"},
			Set: setGroupsExclude,
		},
		{
			Parameter: ParameterOutboundLoopback, Kind: interception.SourceEnv, Keys: []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"},
			Default: "127.0.0.1/32", Set: setLoopback4,
		},
	}
}

func setGroupsInclude(r *Redirect, value string) (err error) {
	r.Outbound.Groups.Limited = strings.TrimSpace(value) != "*"
	r.Outbound.Groups.Include = interception.GIDSet{}
	if r.Outbound.Groups.Limited {
		r.Outbound.Groups.Include, err = interception.ParseRangeSet(value, istioGroup)
	}
	return err
}

func setGroupsExclude(r *Redirect, value string) (err error) {
	if strings.TrimSpace(value) == "*" {
		return notAGroup("*")
	}
	r.Outbound.Groups.Exclude, err = interception.ParseRangeSet(value, istioGroup)
	return err
}

// istioGroup reads an element of a list: there are no ranges in Istio's.
func istioGroup(element string) (interception.Range[interception.GID], error) {
	id, err := strconv.ParseUint(element, 10, 32)
	if err != nil {
		err = notAGroup(element)
	}
	return interception.Range[interception.GID]{First: interception.GID(id), Last: interception.GID(id)}, err
}

func notAGroup(element string) error {
	return fmt.Errorf("%q is not a group id: write numbers, as the node's group names mean nothing in a pod", element)
}

// istioPort likewise.
func istioPort(element string) (interception.Range[interception.Port], error) {
	port, err := strconv.ParseUint(element, 10, 16)
	if err != nil {
		err = fmt.Errorf("%q is not a port: write decimal numbers from 0 to 65535, separated by commas", element)
	}
	return interception.Range[interception.Port]{First: interception.Port(port), Last: interception.Port(port)}, err
}

// setLoopback4 replaces what counts as IPv4 loopback; of IPv6 there is ::1 only.
func setLoopback4(r *Redirect, value string) error {
	prefix, err := interception.ParsePrefix(strings.TrimSpace(value))
	if err != nil {
		return err
	}
	if !prefix.Addr().Is4() || !prefix.Addr().IsLoopback() || prefix.Bits() < 8 {
		return errors.New("write a part of 127.0.0.0/8")
	}
	r.Outbound.Loopback = r.Outbound.Loopback.Of(interception.IPv6).Union(interception.Prefixes(prefix))
	return nil
}

func setMode(r *Redirect, value string) error {
	switch value {
	case "REDIRECT":
		r.Mode = ModeRedirect
	case "TPROXY":
		r.Mode = ModeTProxy
	default:
		return errors.New("write REDIRECT or TPROXY")
	}
	return nil
}

// setOutboundInclude also notes whether loopback was asked for by name: then local traffic is captured too, as in Istio.
func setOutboundInclude(r *Redirect, value string) error {
	set, err := interception.ParsePrefixSet(value)
	if err != nil {
		return err
	}
	r.Outbound.Include = set
	r.Outbound.CaptureLocal = false
	if set.IsAll() {
		return nil
	}
	for element := range strings.SplitSeq(value, ",") { // a set no longer says what was written
		prefix, err := interception.ParsePrefix(strings.TrimSpace(element))
		r.Outbound.CaptureLocal = r.Outbound.CaptureLocal || err == nil && prefix.Addr().IsLoopback()
	}
	return nil
}

func setOutboundExclude(r *Redirect, value string) error {
	if strings.TrimSpace(value) == "*" {
		return errors.New(`"*" would exclude everything: make includeOutboundIPRanges empty instead`)
	}
	set, err := interception.ParsePrefixSet(value)
	if err != nil {
		return err
	}
	r.Outbound.Exclude = set
	return nil
}

func setPorts(field func(*Redirect) *interception.PortSet) func(*Redirect, string) error {
	return func(r *Redirect, value string) (err error) {
		*field(r), err = interception.ParseRangeSet(value, istioPort)
		return err
	}
}

func setInterfaces(field func(*Redirect) *interception.InterfaceSet) func(*Redirect, string) error {
	return func(r *Redirect, value string) (err error) {
		*field(r), err = interception.ParseInterfaceSet(value)
		return err
	}
}

func setBool(set func(*Redirect, bool)) func(*Redirect, string) error {
	return func(r *Redirect, value string) error {
		on, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New(`write "true" or "false"`)
		}
		set(r, on)
		return nil
	}
}

// setID takes 0 for the default id: a proxy that runs as root has the default group, and is known by that.
func setID(set func(*Redirect, uint32)) func(*Redirect, string) error {
	return func(r *Redirect, value string) error {
		id, err := strconv.ParseUint(value, 10, 32)
		if err != nil || id == 1<<32-1 { // (uid_t)-1 stands for "no id"
			return errors.New("an id is a number from 0 to 4294967294")
		}
		if id == 0 {
			id = istioProxyID
		}
		set(r, uint32(id))
		return nil
	}
}

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
