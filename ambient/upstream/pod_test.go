// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"errors"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
)

// TestPodPlanDoesWhatUpstreamDoes compares the plans with upstream's rules, for the inputs of
// upstream's golden files.
func TestPodPlanDoesWhatUpstreamDoes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations map[string]string
		dnsDefault  bool
		dns         bool
		ingress     bool
		virtual     []interception.Interface
	}{
		"default": {dnsDefault: true, dns: true},
		"no dns":  {},
		"ingress": {annotations: map[string]string{"ambient.istio.io/bypass-inbound-capture": "true"}, ingress: true},
		"virtual interfaces": {
			annotations: map[string]string{"istio.io/reroute-virtual-interfaces": "fake1s0f0, fake1s0f1"},
			virtual:     []interception.Interface{"fake1s0f0", "fake1s0f1"},
		},
		"ingress and virtual interfaces": {
			annotations: map[string]string{
				"ambient.istio.io/bypass-inbound-capture": "true", "istio.io/reroute-virtual-interfaces": "fake1s0f0,fake1s0f1",
			},
			ingress: true, virtual: []interception.Interface{"fake1s0f0", "fake1s0f1"},
		},
		"dns for the pod":     {annotations: map[string]string{"ambient.istio.io/dns-capture": "true"}, dns: true},
		"dns not for the pod": {annotations: map[string]string{"ambient.istio.io/dns-capture": "false"}, dnsDefault: true},
	} {
		for _, facts := range []interception.Facts{{}, {IPv6: true, LoopbackIPv6: true}} {
			t.Run(name+map[bool]string{true: " dual"}[facts.IPv6], func(t *testing.T) {
				t.Parallel()
				overrides, warnings, err := ambient.Istio().Parse(interception.Pod{Annotations: test.annotations}, ambient.DefaultOverrides(test.dnsDefault))
				if err != nil || len(warnings) > 0 {
					t.Fatal(warnings, err)
				}
				ours, err := ambient.PodPlan(overrides, ambient.IstioNumbers(), facts, "test-ambient")
				if err != nil {
					t.Fatal(err)
				}
				for _, generation := range []upstream.Generation{upstream.GenerationRedirect, upstream.GenerationNative} {
					if generation == upstream.GenerationNative && !facts.IPv6 {
						continue // it captures queries over IPv6 all the same
					}
					theirs, err := upstream.PodRules{
						Generation: generation, DNS: test.dns, BypassInbound: test.ingress, Reroute: test.virtual, IPv6: facts.IPv6,
					}.Plan(ambient.IstioNumbers(), "istio-up")
					if err != nil {
						t.Fatal(err)
					}
					comparison, err := proof.Equivalent(ours, theirs, proof.Options{})
					if err != nil {
						t.Fatal(err)
					}
					if comparison.Answer != proof.Yes {
						t.Errorf("%s\nours:\n%s\nupstream's:\n%s", comparison, ours, theirs)
					}
				}
				findings, err := proof.Lint(ours, proof.Options{})
				if err != nil || len(findings) > 0 {
					t.Errorf("Lint: %v, %v\n%s", findings, err, ours)
				}
			})
		}
	}
}

// TestUpstreamDiffers shows, for each form of upstream's rules that does not do what the plan of
// the same pod does, the packets that end differently.
func TestUpstreamDiffers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rules   upstream.PodRules
		packets map[string]string // where they end upstream, and in the plan
	}{
		"native captures queries over IPv6 where IPv6 is off": {
			upstream.PodRules{Generation: upstream.GenerationNative, DNS: true},
			map[string]string{"udp uid 1000 gid 1000 > [2001:db8::1]:53": "dns, sent eth0"},
		},
		"tproxy captures no queries over TCP, and the proxy's own over UDP": {
			upstream.PodRules{Generation: upstream.GenerationTProxy, DNS: true, IPv6: true},
			map[string]string{
				"tcp uid 1000 gid 1000 > 192.0.2.1:53": "outbound, dns", "udp uid 0 gid 0 mark 0x539 > 192.0.2.1:53": "dns, sent eth0",
			},
		},
		"the mark that some releases leave out matters to no client": {
			upstream.PodRules{Generation: upstream.GenerationRedirect, BypassInbound: true, Unmarked: true},
			map[string]string{"tcp in eth0 10.244.1.7:40000 > 10.244.0.2:8080": "application, application"},
		},
	} {
		theirs, err := test.rules.Plan(ambient.IstioNumbers(), "istio-up")
		if err != nil {
			t.Fatal(err)
		}
		overrides := ambient.DefaultOverrides(test.rules.DNS)
		overrides.BypassInbound = test.rules.BypassInbound
		facts := interception.Facts{IPv6: test.rules.IPv6, LoopbackIPv6: test.rules.IPv6}
		ours, err := ambient.PodPlan(overrides, ambient.IstioNumbers(), facts, "test-ambient")
		if err != nil {
			t.Fatal(err)
		}
		comparison, err := proof.Equivalent(theirs, ours, proof.Options{})
		if err != nil || comparison.Answer != proof.No {
			t.Errorf("%s: %v, %v, want a packet that ends differently", name, comparison, err)
		}
		for packet, want := range test.packets {
			former, _ := ends(t, pod(theirs, false), packet)
			plan, _ := ends(t, pod(ours, false), packet)
			if got := former + ", " + plan; got != want {
				t.Errorf("%s: %s ends at %s, want %s", name, packet, got, want)
			}
		}
	}
}

// TestUpstreamOfTProxy traces connections through the rules of TPROXY.
func TestUpstreamOfTProxy(t *testing.T) {
	t.Parallel()
	for _, generation := range []upstream.Generation{upstream.GenerationTProxy, upstream.GenerationTProxyZones} {
		plan, err := upstream.PodRules{Generation: generation, DNS: true, IPv6: true}.Plan(ambient.IstioNumbers(), "istio-up")
		if err != nil {
			t.Fatal(err)
		}
		world := pod(plan, true)
		tcpQuery := "dns"
		if generation == upstream.GenerationTProxy {
			tcpQuery = "outbound"
		}
		for line, want := range map[string]string{
			"tcp in eth0 192.0.2.9:40000 > 10.244.0.2:8080": "inbound", "tcp in eth0 169.254.7.127:40000 > 10.244.0.2:8080": "application",
			"tcp in eth0 192.0.2.9:40000 > 10.244.0.2:15008": "tunnel", "tcp uid 1000 gid 1000 > 198.51.100.7:443": "outbound",
			"tcp uid 1000 gid 1000 > 198.51.100.7:53": tcpQuery, "udp uid 1000 gid 1000 > 198.51.100.7:53": "dns",
			"tcp uid 1000 gid 1000 > 10.244.0.2:8080": "application",
		} {
			if got, outcome := ends(t, world, line); got != want {
				t.Errorf("%s: %s ends at %s, want %s\n%s", generation, line, got, want, outcome.Report())
			}
		}
	}
}

func TestUpstreamPlanRefuses(t *testing.T) {
	t.Parallel()
	for name, u := range map[string]upstream.PodRules{
		"no generation": {}, "ingress": {Generation: upstream.GenerationTProxy, BypassInbound: true},
		"virtual interfaces": {Generation: upstream.GenerationTProxyZones, Reroute: []interception.Interface{"fake1s0f0"}},
		"unmarked":           {Generation: upstream.GenerationRedirect, Unmarked: true},
	} {
		if plan, err := u.Plan(ambient.IstioNumbers(), "istio-up"); err == nil || plan != nil {
			t.Errorf("%s: %v, %v, want an error", name, plan, err)
		}
	}
	if _, err := (upstream.PodRules{Generation: upstream.GenerationNative}).Plan(ambient.Numbers{}, "istio-up"); !errors.Is(err, ambient.ErrNumbers) {
		t.Errorf("no numbers: %v, want ErrNumbers", err)
	}
}
