// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Istio's fixed ports and the default id of its proxy. See
// https://istio.io/latest/docs/ops/deployment/application-requirements/.
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

// Istio returns the vocabulary of Istio's sidecars
// (https://istio.io/latest/docs/reference/config/annotations/).
//
// It follows the documentation where Istio's own plugin deviates from it:
//
//   - Blanks in lists are ignored, and "*" means all ports in every list, also in exclusions.
//   - An explicit list of inbound ports overrides the inbound exclusions, as in Istio. Parse
//     reports exclusions without an effect.
//   - The proxy's ids are those it really runs as: from its container's securityContext, else the
//     pod's. 0 means 1337, as in Istio.
//   - Both IP families are captured wherever the pod has them, whatever ISTIO_DUAL_STACK says.
//   - The owner groups and the loopback prefix come from the variables of the proxy container;
//     Istio's plugin reads them from its own environment. Groups are numbers, because the node's
//     group names do not apply in a pod.
//   - An unknown key below traffic.sidecar.istio.io/ is reported.
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

// istioGroup parses an element of a list of groups. Istio's lists have no ranges.
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

// istioPort parses an element of a list of ports. Istio's lists have no ranges.
func istioPort(element string) (interception.Range[interception.Port], error) {
	port, err := strconv.ParseUint(element, 10, 16)
	if err != nil {
		err = fmt.Errorf("%q is not a port: write decimal numbers from 0 to 65535, separated by commas", element)
	}
	return interception.Range[interception.Port]{First: interception.Port(port), Last: interception.Port(port)}, err
}

// setLoopback4 replaces the IPv4 loopback prefix. IPv6 loopback is always ::1.
func setLoopback4(r *Redirect, value string) error {
	set, err := interception.ParsePrefixSet(strings.TrimSpace(value))
	if err != nil {
		return err
	}
	prefixes := set.Prefixes()
	if len(prefixes) != 1 || !prefixes[0].Addr().Is4() || !prefixes[0].Addr().IsLoopback() || prefixes[0].Bits() < 8 {
		return errors.New("write a part of 127.0.0.0/8")
	}
	r.Outbound.Loopback = r.Outbound.Loopback.Of(interception.IPv6).Union(set)
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

// setOutboundInclude also captures local traffic if the list names loopback, as Istio does.
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
	// The set has merged the prefixes as written.
	for element := range strings.SplitSeq(value, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(element))
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

// setID takes 0 for the default id: a proxy that runs as root still has the default group.
func setID(set func(*Redirect, uint32)) func(*Redirect, string) error {
	return func(r *Redirect, value string) error {
		id, err := strconv.ParseUint(value, 10, 32)
		if err != nil || id == 1<<32-1 { // (uid_t)-1 means "no id"
			return errors.New("an id is a number from 0 to 4294967294")
		}
		set(r, cmp.Or(uint32(id), istioProxyID))
		return nil
	}
}

// resolveIstio settles interactions between Istio's parameters.
func resolveIstio(r *Redirect) []interception.Warning {
	var warnings []interception.Warning
	// warn reports a parameter that the pod sets without an effect.
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
