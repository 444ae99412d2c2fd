// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
)

func parse(annotations map[string]string, dns bool) (Overrides, []interception.Warning, error) {
	return Istio().Parse(interception.Pod{Annotations: annotations}, DefaultOverrides(dns))
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations map[string]string
		dns         bool
		want        string
	}{
		"nothing":       {want: "inbound *-,outbound -,to *-"},
		"dns globally":  {dns: true, want: "dns,inbound *-,outbound -,to *-"},
		"dns for a pod": {annotations: map[string]string{"ambient.istio.io/dns-capture": "true"}, want: "dns,inbound *-,outbound -,to *-"},
		"dns off for a pod": {
			annotations: map[string]string{"ambient.istio.io/dns-capture": "false"}, dns: true, want: "inbound *-,outbound -,to *-",
		},
		"all three": {
			annotations: map[string]string{
				"ambient.istio.io/dns-capture": "true", "ambient.istio.io/bypass-inbound-capture": "true",
				"istio.io/reroute-virtual-interfaces": "en0ps1, en1ps1",
			},
			want: "bypass,dns,reroute en0ps1,en1ps1,inbound *-,outbound -,to *-",
		},
		"exclusions": {
			annotations: map[string]string{
				"traffic.istio.io/excludeInterfaces": "net1", "traffic.istio.io/includeInboundPorts": "80,443",
				"traffic.istio.io/excludeInboundPorts": "443", "traffic.istio.io/includeOutboundPorts": "25",
				"traffic.istio.io/excludeOutboundPorts": "3306", "traffic.istio.io/includeOutboundIPRanges": "10.0.0.0/8",
				"traffic.istio.io/excludeOutboundIPRanges": "10.1.0.0/16",
			},
			want: "exclude net1,inbound 80,443-443,outbound 25-3306,to 10.0.0.0/8-10.1.0.0/16",
		},
	} {
		o, warnings, err := parse(test.annotations, test.dns)
		if got := describe(o); err != nil || len(warnings) > 0 || got != test.want {
			t.Errorf("%s: %s, %v, %v, want %s", name, got, warnings, err, test.want)
		}
		if len(o.Sources) != len(test.annotations) {
			t.Errorf("%s: provenance of %d parameters, want %d", name, len(o.Sources), len(test.annotations))
		}
	}
}

func describe(o Overrides) string {
	var parts []string
	for name, on := range map[string]bool{"bypass": o.BypassInbound, "dns": o.DNS} {
		if on {
			parts = append(parts, name)
		}
	}
	if len(parts) == 2 {
		parts = []string{"bypass", "dns"}
	}
	if !o.Reroute.IsEmpty() {
		parts = append(parts, "reroute "+o.Reroute.String())
	}
	if !o.Exclude.IsEmpty() {
		parts = append(parts, "exclude "+o.Exclude.String())
	}
	ports := func(name string, p Ports) string { return fmt.Sprintf("%s %s-%s", name, p.Include, p.Exclude) }
	parts = append(parts, ports("inbound", o.Inbound), ports("outbound", o.Outbound))
	return strings.Join(append(parts, fmt.Sprintf("to %s-%s", o.Destinations, o.ExcludeDestinations)), ",")
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{
		"istio.io/reroute-virtual-interfaces":      "asd^/,   ",
		"traffic.istio.io/excludeInterfaces":       "eth0 eth1",
		"traffic.istio.io/includeInboundPorts":     "http",
		"traffic.istio.io/excludeInboundPorts":     "65536",
		"traffic.istio.io/includeOutboundPorts":    "1,,2",
		"traffic.istio.io/excludeOutboundPorts":    "-1",
		"traffic.istio.io/includeOutboundIPRanges": "10.0.0.0",
		"traffic.istio.io/excludeOutboundIPRanges": strings.Repeat("x", 64<<10),
	} {
		o, warnings, err := parse(map[string]string{key: value, "ambient.istio.io/dns-capture": "true"}, false)
		var invalid *interception.ParseError
		if !errors.As(err, &invalid) || invalid.Source.Key != key || invalid.Source.Value != value || o.DNS || warnings != nil {
			t.Errorf("%s=%.20q: %v, %v, %v, want a ParseError alone", key, value, o.DNS, warnings, err)
		}
	}
}

func TestParseWarns(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ key, value, want string }{
		"no boolean":     {"ambient.istio.io/dns-capture", "tweedledum", `it has no effect: write "true" or "false"`},
		"no boolean too": {"ambient.istio.io/bypass-inbound-capture", "tweedledee", `it has no effect: write "true" or "false"`},
		"misspelt":       {"traffic.istio.io/excludeOutboundPort", "1", "check its spelling"},
		"retired":        {"ambient.istio.io/redirection", "disabled", "set the pod's label istio.io/dataplane-mode to none"},
	} {
		o, warnings, err := parse(map[string]string{test.key: test.value}, true)
		if err != nil || !o.DNS || o.BypassInbound || len(warnings) != 1 || warnings[0].Source.Key != test.key ||
			!strings.Contains(warnings[0].Reason, test.want) {
			t.Errorf("%s: %v, %v, want one warning with %q", name, warnings, err, test.want)
		}
	}
	for _, status := range []string{"enabled", "pending"} {
		if _, warnings, err := parse(map[string]string{"ambient.istio.io/redirection": status, "example.com/a": "b"}, false); err != nil || warnings != nil {
			t.Errorf("%s: %v, %v, want nothing about what the agent writes", status, warnings, err)
		}
	}
}

func TestParseLeavesTheDefaultsAlone(t *testing.T) {
	t.Parallel()
	defaults := DefaultOverrides(false)
	defaults.Sources = map[Parameter][]interception.Source{}
	pod := interception.Pod{Annotations: map[string]string{"ambient.istio.io/dns-capture": "true"}}
	if _, _, err := Istio().Parse(pod, defaults); err != nil || len(defaults.Sources) > 0 || defaults.DNS {
		t.Errorf("Parse changed the defaults to %v, %v, error %v", defaults.DNS, defaults.Sources, err)
	}
}

// TestWarningsOnNode has each annotation ask for something that capture on the node does not give,
// and for what it gives anyway.
func TestWarningsOnNode(t *testing.T) {
	t.Parallel()
	anyway := map[Parameter]string{
		ParameterBypassInbound: "false", ParameterDNS: "true", ParameterInboundInclude: "*", ParameterOutboundInclude: "*",
	}
	for _, field := range Istio().Fields {
		for value, want := range map[string]int{"80,none,10.0.0.0/8": 1, anyway[field.Parameter]: 0} {
			pod := interception.Pod{Annotations: map[string]string{field.Key: value}}
			warnings := Istio().WarningsOnNode(pod, DefaultOverrides(true))
			if len(warnings) != want || want == 1 && (warnings[0].Source.Key != field.Key || warnings[0].Source.Value != value) {
				t.Errorf("%s=%q: %v, want %d warnings", field.Key, value, warnings, want)
			}
		}
	}
	both := interception.Pod{Annotations: map[string]string{
		"traffic.istio.io/excludeInboundPorts": "80", "ambient.istio.io/redirection": "disabled", "traffic.istio.io/x": "", "example.com/a": "b",
	}}
	var keys []string
	for _, warning := range Istio().WarningsOnNode(both, DefaultOverrides(true)) {
		keys = append(keys, warning.Source.Key)
	}
	want := []string{"ambient.istio.io/redirection", "traffic.istio.io/excludeInboundPorts", "traffic.istio.io/x"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}
