// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

const trafficPrefix = "traffic.sidecar.istio.io/"

func mustParse(t *testing.T, edits ...func(*interception.Pod)) (Redirect, []interception.Warning) {
	t.Helper()
	r, warnings, err := Istio().Parse(meshPod(edits...))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return r, warnings
}

func TestIstioDefaults(t *testing.T) {
	t.Parallel()
	r, warnings := mustParse(t)
	for _, tc := range []struct{ field, got, want string }{
		{"Mode", r.Mode.String(), "REDIRECT"},
		{"Proxy.UIDs", r.Proxy.UIDs.String(), "1337"},
		{"Proxy.GIDs", r.Proxy.GIDs.String(), "1337"},
		{"Proxy ports", interception.Ports(r.Proxy.OutboundPort, r.Proxy.InboundPort, r.Proxy.TunnelPort).String(), "15001,15006,15008"},
		{"Proxy.PassthroughSources", r.Proxy.PassthroughSources.String(), "127.0.0.6/32,::6/128"},
		{"Inbound.Include", r.Inbound.Include.String(), "*"},
		{"Inbound.Exclude", r.Inbound.Exclude.String(), "15020-15021,15090"},
		{"Outbound.Include", r.Outbound.Include.String(), "*"},
		{"Outbound.Exclude", r.Outbound.Exclude.String(), ""},
		{"Outbound.IncludePorts", r.Outbound.IncludePorts.String(), ""},
		{"Outbound.ExcludePorts", r.Outbound.ExcludePorts.String(), "15020"},
		{"Outbound.Loopback", r.Outbound.Loopback.String(), "127.0.0.1/32,::1/128"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s = %q, want %q", tc.field, tc.got, tc.want)
		}
	}
	if r.DNS.Port != 0 || r.DropInvalid || r.Outbound.CaptureLocal || !r.Interfaces.Exclude.IsEmpty() || !r.Interfaces.Reroute.IsEmpty() {
		t.Errorf("something is on that is off by default: %+v", r)
	}
	if len(warnings) > 0 {
		t.Errorf("a pod without annotations is warned of: %v", warnings)
	}
}

// TestIstioKeys sets each key and checks what it changes, and its provenance.
func TestIstioKeys(t *testing.T) {
	t.Parallel()
	id := func(n int64) *int64 { return &n }
	proxyRunsAs := func(user, group *int64) func(*interception.Pod) {
		return func(p *interception.Pod) { p.Containers[2].RunAsUser, p.Containers[2].RunAsGroup = user, group }
	}
	for _, tc := range []struct {
		name      string
		edit      func(*interception.Pod)
		parameter Parameter
		got       func(Redirect) string
		want      string
	}{
		{"tproxy", annotate("sidecar.istio.io/interceptionMode", "TPROXY"), ParameterMode, func(r Redirect) string { return r.Mode.String() }, "TPROXY"},
		{"redirect", annotate("sidecar.istio.io/interceptionMode", "REDIRECT"), ParameterMode, func(r Redirect) string { return r.Mode.String() }, "REDIRECT"},
		{
			"outbound include", annotate(trafficPrefix+"includeOutboundIPRanges", "10.0.0.0/8, 2001:db8::/32"), ParameterOutboundInclude,
			func(r Redirect) string { return r.Outbound.Include.String() }, "10.0.0.0/8,2001:db8::/32",
		},
		{
			"outbound include nothing", annotate(trafficPrefix+"includeOutboundIPRanges", ""), ParameterOutboundInclude,
			func(r Redirect) string { return r.Outbound.Include.String() }, "",
		},
		{
			"outbound exclude", annotate(trafficPrefix+"excludeOutboundIPRanges", "10.1.0.0/16,fd00::/8"), ParameterOutboundExclude,
			func(r Redirect) string { return r.Outbound.Exclude.String() }, "10.1.0.0/16,fd00::/8",
		},
		{
			"inbound include", annotate(trafficPrefix+"includeInboundPorts", "80, 90"), ParameterInboundInclude,
			func(r Redirect) string { return r.Inbound.Include.String() }, "80,90",
		},
		{
			"blanks between networks", annotate(trafficPrefix+"excludeOutboundIPRanges", " 10.1.0.0/16 , fd00::/8 "), ParameterOutboundExclude,
			func(r Redirect) string { return r.Outbound.Exclude.String() }, "10.1.0.0/16,fd00::/8",
		},
		{
			"blanks between interfaces", annotate(trafficPrefix+"excludeInterfaces", " net1 , net2 "), ParameterInterfacesExclude,
			func(r Redirect) string { return r.Interfaces.Exclude.String() }, "net1,net2",
		},
		{
			"outbound include all ports", annotate(trafficPrefix+"includeOutboundPorts", "*"), ParameterOutboundIncludePorts,
			func(r Redirect) string { return r.Outbound.IncludePorts.String() }, "*",
		},
		{
			"inbound include nothing", annotate(trafficPrefix+"includeInboundPorts", ""), ParameterInboundInclude,
			func(r Redirect) string { return r.Inbound.Include.String() }, "",
		},
		{
			"inbound exclude", annotate(trafficPrefix+"excludeInboundPorts", "3306"), ParameterInboundExclude,
			func(r Redirect) string { return r.Inbound.Exclude.String() }, "3306,15020-15021,15090",
		},
		{
			"inbound exclude nothing keeps the proxy's own", annotate(trafficPrefix+"excludeInboundPorts", ""), ParameterInboundExclude,
			func(r Redirect) string { return r.Inbound.Exclude.String() }, "15020-15021,15090",
		},
		{
			"inbound exclude all", annotate(trafficPrefix+"excludeInboundPorts", "*"), ParameterInboundExclude,
			func(r Redirect) string { return r.Inbound.Exclude.String() }, "*",
		},
		{
			"outbound include ports", annotate(trafficPrefix+"includeOutboundPorts", "5432,"+"27017"), ParameterOutboundIncludePorts,
			func(r Redirect) string { return r.Outbound.IncludePorts.String() }, "5432,27017",
		},
		{
			"outbound exclude ports", annotate(trafficPrefix+"excludeOutboundPorts", "*"), ParameterOutboundExcludePorts,
			func(r Redirect) string { return r.Outbound.ExcludePorts.String() }, "*",
		},
		{
			"outbound exclude no ports", annotate(trafficPrefix+"excludeOutboundPorts", ""), ParameterOutboundExcludePorts,
			func(r Redirect) string { return r.Outbound.ExcludePorts.String() }, "",
		},
		{
			"exclude interfaces", annotate(trafficPrefix+"excludeInterfaces", "net1, net2"), ParameterInterfacesExclude,
			func(r Redirect) string { return r.Interfaces.Exclude.String() }, "net1,net2",
		},
		{
			"reroute interfaces", annotate("istio.io/reroute-virtual-interfaces", "k6t-eth0"), ParameterInterfacesReroute,
			func(r Redirect) string { return r.Interfaces.Reroute.String() }, "k6t-eth0",
		},
		{
			"reroute interfaces by their old key", annotate(trafficPrefix+"kubevirtInterfaces", "k6t-eth0"), ParameterInterfacesReroute,
			func(r Redirect) string { return r.Interfaces.Reroute.String() }, "k6t-eth0",
		},
		{"user", proxyRunsAs(id(1000670000), nil), ParameterProxyUIDs, func(r Redirect) string { return r.Proxy.UIDs.String() }, "1000670000"},
		{"user 0", proxyRunsAs(id(0), nil), ParameterProxyUIDs, func(r Redirect) string { return r.Proxy.UIDs.String() }, "1337"},
		{"group", proxyRunsAs(nil, id(1000670001)), ParameterProxyGIDs, func(r Redirect) string { return r.Proxy.GIDs.String() }, "1000670001"},
		{
			"user of the pod", func(p *interception.Pod) { p.RunAsUser = id(2000) }, ParameterProxyUIDs,
			func(r Redirect) string { return r.Proxy.UIDs.String() }, "2000",
		},
		{
			"user of the container before the pod's", func(p *interception.Pod) { p.RunAsUser = id(2000); p.Containers[2].RunAsUser = id(3000) }, ParameterProxyUIDs,
			func(r Redirect) string { return r.Proxy.UIDs.String() }, "3000",
		},
		{"dns", proxyEnv("ISTIO_META_DNS_CAPTURE", "true"), ParameterDNS, func(r Redirect) string { return interception.Ports(r.DNS.Port).String() }, "15053"},
		{"drop invalid", proxyEnv("INVALID_DROP", "1"), ParameterDropInvalid, func(r Redirect) string { return map[bool]string{true: "on"}[r.DropInvalid] }, "on"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r, _ := mustParse(t, tc.edit)
			if got := tc.got(r); got != tc.want {
				t.Errorf("%s = %q, want %q", tc.parameter, got, tc.want)
			}
			sources := r.Sources[tc.parameter]
			if len(sources) == 0 || sources[0].Kind == interception.SourceDefault {
				t.Errorf("provenance of %s is %v, want what was set", tc.parameter, sources)
			}
		})
	}
}

func TestIstioRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ key, value, reason string }{
		{"sidecar.istio.io/interceptionMode", "NONE", "write REDIRECT or TPROXY"},
		{"sidecar.istio.io/interceptionMode", "tproxy", "write REDIRECT or TPROXY"},
		{"sidecar.istio.io/interceptionMode", "", "write REDIRECT or TPROXY"},
		{trafficPrefix + "includeOutboundIPRanges", "10.0.0.1", "write it as the prefix 10.0.0.1/32"},
		{trafficPrefix + "includeOutboundIPRanges", "10.0.0.0/8,*", "must be alone"},
		{trafficPrefix + "excludeOutboundIPRanges", "*", "make includeOutboundIPRanges empty"},
		{trafficPrefix + "excludeOutboundIPRanges", "10.0.0.0/8,", "empty"},
		{trafficPrefix + "includeInboundPorts", "http", `"http" is not a port`},
		{trafficPrefix + "excludeInboundPorts", "80,*", "must be alone"},
		{trafficPrefix + "includeOutboundPorts", "1-2", `"1-2" is not a port`},
		{trafficPrefix + "excludeOutboundPorts", "70000", `"70000" is not a port`},
		{trafficPrefix + "excludeInterfaces", "eth+", "not allowed"},
		{"istio.io/reroute-virtual-interfaces", "a,,b", "remove the extra comma"},
	} {
		t.Run(tc.key+"="+tc.value, func(t *testing.T) {
			t.Parallel()
			r, _, err := Istio().Parse(meshPod(annotate(tc.key, tc.value)))
			var parse *interception.ParseError
			if !errors.As(err, &parse) {
				t.Fatalf("Parse = %v, want a ParseError", err)
			}
			if want := (interception.Source{Kind: interception.SourceAnnotation, Key: tc.key, Value: tc.value}); parse.Source != want {
				t.Errorf("the error is about %v, want %v", parse.Source, want)
			}
			for _, part := range []string{tc.key, tc.reason} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not name %q", err, part)
				}
			}
			if r.Sources != nil || r.capturesOutbound() {
				t.Errorf("Parse gives a redirect beside its error: %+v", r)
			}
		})
	}
}

// Groups come from variables of the proxy. They have no ranges, and no "*" to exclude all.
func TestIstioRefusesGroups(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ key, value string }{
		{"ISTIO_OUTBOUND_OWNER_GROUPS", "1000-2000"},
		{"ISTIO_OUTBOUND_OWNER_GROUPS", "java"},
		{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "1000-2000"},
		{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", " * "},
	} {
		_, _, err := Istio().Parse(meshPod(func(p *interception.Pod) { p.Containers[2].Env = map[string]string{tc.key: tc.value} }))
		if err == nil || !strings.Contains(err.Error(), "is not a group id: write numbers") {
			t.Errorf("%s=%q: %v", tc.key, tc.value, err)
		}
	}
}

func TestIstioReportsEveryBadValue(t *testing.T) {
	t.Parallel()
	_, _, err := Istio().Parse(meshPod(annotate(trafficPrefix+"includeInboundPorts", "x"), annotate(trafficPrefix+"excludeOutboundPorts", "y")))
	for _, key := range []string{"includeInboundPorts", "excludeOutboundPorts"} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("error %v does not name %s", err, key)
		}
	}
}

func TestIstioRefusesNegativeIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []int64{-1, 1<<32 - 1, 1 << 32} {
		if _, _, err := Istio().Parse(meshPod(func(p *interception.Pod) { p.Containers[2].RunAsUser = &id })); err == nil {
			t.Errorf("Parse takes the user %d", id)
		}
	}
}

func TestIstioWarnings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		edit []func(*interception.Pod)
		want []string // a key and a part of the reason each; nil for no warning
	}{
		{
			"inbound exclusions beside a list",
			[]func(*interception.Pod){
				annotate(trafficPrefix+"includeInboundPorts", "80"), annotate(trafficPrefix+"excludeInboundPorts", "90"),
			},
			[]string{"excludeInboundPorts", "includeInboundPorts lists"},
		},
		{
			"empty inbound exclusions beside a list",
			[]func(*interception.Pod){annotate(trafficPrefix+"includeInboundPorts", "80"), annotate(trafficPrefix+"excludeInboundPorts", "")},
			nil,
		},
		{"included ports beside all", []func(*interception.Pod){annotate(trafficPrefix+"includeOutboundPorts", "80")}, []string{"includeOutboundPorts", "every port already"}},
		{
			"included ports beside some",
			[]func(*interception.Pod){annotate(trafficPrefix+"includeOutboundPorts", "80"), annotate(trafficPrefix+"includeOutboundIPRanges", "10.0.0.0/8")},
			nil,
		},
		{
			"excluded prefixes beside nothing",
			[]func(*interception.Pod){annotate(trafficPrefix+"excludeOutboundIPRanges", "10.0.0.0/8"), annotate(trafficPrefix+"includeOutboundIPRanges", "")},
			[]string{"excludeOutboundIPRanges", "no outbound traffic"},
		},
		{"misspelt key", []func(*interception.Pod){annotate(trafficPrefix+"excludeInboundPort", "80")}, []string{"excludeInboundPort=", "spelling"}},
		{"key that nobody reads", []func(*interception.Pod){annotate("status.sidecar.istio.io/port", "15020")}, []string{"status.sidecar.istio.io/port", "excludeInboundPorts"}},
		{"key of another subject", []func(*interception.Pod){annotate("sidecar.istio.io/proxyCPU", "1")}, nil},
		{"deprecated key", []func(*interception.Pod){annotate(trafficPrefix+"kubevirtInterfaces", "")}, []string{"kubevirtInterfaces", "deprecated"}},
		{
			"old key beside the new",
			[]func(*interception.Pod){annotate(trafficPrefix+"kubevirtInterfaces", ""), annotate("istio.io/reroute-virtual-interfaces", "")},
			[]string{"kubevirtInterfaces", "reroute-virtual-interfaces is there too"},
		},
		{"opt-out that is no boolean", []func(*interception.Pod){annotate("sidecar.istio.io/inject", "no")}, []string{"sidecar.istio.io/inject", `"true" or "false"`}},
		{"variable that is no boolean", []func(*interception.Pod){proxyEnv("INVALID_DROP", "maybe")}, []string{"env INVALID_DROP", `"true" or "false"`}},
		{"single stack", []func(*interception.Pod){proxyEnv("ISTIO_DUAL_STACK", "false")}, []string{"ISTIO_DUAL_STACK", "both IP families"}},
		{"dual stack", []func(*interception.Pod){proxyEnv("ISTIO_DUAL_STACK", "true")}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, warnings := mustParse(t, tc.edit...)
			if len(tc.want) == 0 {
				if len(warnings) > 0 {
					t.Errorf("warnings %v, want none", warnings)
				}
				return
			}
			if len(warnings) != 1 {
				t.Fatalf("warnings %v, want one", warnings)
			}
			for _, part := range tc.want {
				if !strings.Contains(warnings[0].String(), part) {
					t.Errorf("warning %q does not say %q", warnings[0], part)
				}
			}
		})
	}
}

// TestIstioListVoidsExclusions checks that an explicit list overrides the exclusions.
func TestIstioListVoidsExclusions(t *testing.T) {
	t.Parallel()
	r, _ := mustParse(t, annotate(trafficPrefix+"includeInboundPorts", "80,15020"), annotate(trafficPrefix+"excludeInboundPorts", "80"))
	if !r.Inbound.Exclude.IsEmpty() {
		t.Errorf("Inbound.Exclude = %q, want nothing", r.Inbound.Exclude)
	}
}

func TestIstioLoopbackByName(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		"127.0.0.0/8": true, "127.1.2.3/32": true, "::1/128": true, "10.0.0.0/8,127.0.0.0/8": true,
		"*": false, "0.0.0.0/0": false, "10.0.0.0/8": false, "": false, "126.0.0.0/7": false,
	} {
		r, _ := mustParse(t, annotate(trafficPrefix+"includeOutboundIPRanges", value))
		if r.Outbound.CaptureLocal != want {
			t.Errorf("includeOutboundIPRanges=%q: CaptureLocal = %t, want %t", value, r.Outbound.CaptureLocal, want)
		}
	}
}

func TestParseDoesNotChangeTheDialect(t *testing.T) {
	t.Parallel()
	dialect := Istio()
	dialect.Base.Sources = map[Parameter][]interception.Source{ParameterMode: {{Kind: interception.SourceDialect, Key: "base"}}}
	for range 2 {
		r, _, err := dialect.Parse(meshPod())
		if err != nil || len(r.Sources[ParameterMode]) != 2 {
			t.Fatalf("Parse: sources of the mode %v, %v; want the base's and the default", r.Sources[ParameterMode], err)
		}
	}
	if !slices.Equal(dialect.Base.Sources[ParameterMode], []interception.Source{{Kind: interception.SourceDialect, Key: "base"}}) {
		t.Errorf("Parse changed the dialect's base: %v", dialect.Base.Sources)
	}
}
