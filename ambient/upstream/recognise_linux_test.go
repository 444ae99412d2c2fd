// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/upstreamtest"
)

// reader returns the dataplane that decodes what a program has written.
func reader(t *testing.T, program upstreamtest.Program) interception.Dataplane {
	t.Helper()
	if program == upstreamtest.NFT {
		d, err := nftables.New(nftables.Options{Foreign: true})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d, err := iptables.New(iptables.Options{Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func recognise(t *testing.T, pod *sandboxtest.Pod, program upstreamtest.Program) []upstream.Recognised {
	t.Helper()
	state, err := reader(t, program).Observe(t.Context(), pod.Netns, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	found, err := upstream.Recognise(state.Foreign, ambient.IstioNumbers())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// upstreams returns the rule sets to recognise, with the programs that write them.
func upstreams() map[upstreamtest.Program][]upstream.PodRules {
	all := map[upstreamtest.Program][]upstream.PodRules{}
	for _, program := range upstreamtest.Programs() {
		for _, ipv6 := range []bool{false, true} {
			for _, dns := range []bool{false, true} {
				generations := []upstream.Generation{upstream.GenerationRedirect, upstream.GenerationTProxy, upstream.GenerationTProxyZones}
				if program == upstreamtest.NFT {
					generations = []upstream.Generation{upstream.GenerationNative}
				}
				for i, generation := range generations {
					u := upstream.PodRules{Generation: generation, DNS: dns, IPv6: ipv6}
					if generation == upstream.GenerationTProxyZones && !dns {
						continue // the same as the first one
					}
					if all[program] = append(all[program], u); i > 0 {
						continue
					}
					rerouted := []interception.Interface{"fake1s0f0", "fake1s0f1"}
					for _, further := range []upstream.PodRules{
						{BypassInbound: true},
						{BypassInbound: true, Unmarked: true},
						{Reroute: rerouted},
						{BypassInbound: true, Reroute: rerouted},
						{BypassInbound: true, Unmarked: true, Reroute: rerouted},
					} {
						further.Generation, further.DNS, further.IPv6 = u.Generation, dns, ipv6
						all[program] = append(all[program], further)
					}
				}
			}
		}
	}
	return all
}

// TestRecognise has rules of Istio's node agent in a namespace, in each of their forms.
func TestRecognise(t *testing.T) {
	t.Parallel()
	for program, all := range upstreams() {
		for _, want := range all {
			t.Run(fmt.Sprintf("%s %+v", program, want), func(t *testing.T) {
				t.Parallel()
				pod := sandboxtest.NewPod(t)
				if found := recognise(t, pod, program); found != nil {
					t.Errorf("in an empty namespace: %+v", found)
				}
				upstreamtest.Install(t, pod.File(), want, program)
				found := recognise(t, pod, program)
				if len(found) != 1 || found[0].Program != program || !reflect.DeepEqual(found[0].Rules, want) ||
					found[0].Differences != nil {
					t.Errorf("found %+v, want %+v", found, want)
				}
			})
		}
	}
}

// TestRecogniseDifferences changes such rules.
func TestRecogniseDifferences(t *testing.T) {
	t.Parallel()
	change := func(lines string) func(*testing.T, *sandboxtest.Pod) {
		return func(t *testing.T, pod *sandboxtest.Pod) {
			t.Helper()
			pod.Run(t, "*nat\n"+lines+"\nCOMMIT\n", "iptables-nft-restore", "--noflush")
		}
	}
	nft := func(text string) func(*testing.T, *sandboxtest.Pod) {
		return func(t *testing.T, pod *sandboxtest.Pod) {
			t.Helper()
			pod.Run(t, text, "nft", "-f", "-")
		}
	}
	for name, test := range map[string]struct {
		change func(*testing.T, *sandboxtest.Pod)
		by     upstreamtest.Program
		want   string
	}{
		"another rule": {
			change("-A ISTIO_OUTPUT -p tcp --dport 9 -j RETURN"), upstreamtest.IPTablesNFT, "v4 nat output: another rule, v4 tcp dport 9 -> return",
		},
		"a missing rule": {
			change("-D ISTIO_OUTPUT -p tcp -m mark --mark 0x111/0xfff -j ACCEPT"), upstreamtest.IPTablesNFT,
			"v4 nat output: missing v4 tcp mark 0x111/0xfff -> accept",
		},
		"another order": {
			change("-D ISTIO_OUTPUT -p tcp -m mark --mark 0x111/0xfff -j ACCEPT\n-A ISTIO_OUTPUT -p tcp -m mark --mark 0x111/0xfff -j ACCEPT"),
			upstreamtest.IPTablesNFT, "v4 nat output: the rules have another order, or stand there twice",
		},
		"a condition": {
			change("-D OUTPUT -j ISTIO_OUTPUT\n-A OUTPUT -p tcp -j ISTIO_OUTPUT"), upstreamtest.IPTablesNFT,
			"v4 nat output: another rule, v4 tcp -> jump ISTIO_OUTPUT",
		},
		"no jump": {change("-D OUTPUT -j ISTIO_OUTPUT"), upstreamtest.IPTablesNFT, "v4 nat output: missing v4 out lo dst != 127.0.0.1/32 -> accept"},
		"another port": {
			change("-A ISTIO_OUTPUT -p tcp -j REDIRECT --to-ports 15009"), upstreamtest.IPTablesNFT,
			"v4 nat output: another rule, v4 tcp -> redirect to :15009",
		},
		"a chain of a sidecar": {
			change("-N ISTIO_INBOUND"), upstreamtest.IPTablesNFT, "ip nat: another rule, chain ISTIO_INBOUND that no hook leads to",
		},
		"a rule beside nft's jump": {
			nft("add rule inet istio-ambient-mangle output udp dport 9 drop"), upstreamtest.NFT,
			"v6 mangle output: another rule, v6 udp dport 9 -> drop",
		},
		"another policy": {
			nft("add chain inet istio-ambient-mangle output { policy drop; }"), upstreamtest.NFT,
			"v4 mangle output: another rule, a chain of type route, priority -150 and policy drop",
		},
		"another priority": {
			nft("delete chain inet istio-ambient-nat output; add chain inet istio-ambient-nat output { type nat hook output priority -90; }; " +
				"add rule inet istio-ambient-nat output jump istio-output"), upstreamtest.NFT,
			"v4 nat output: another rule, a chain of type nat, priority -90 and policy accept",
		},
		"what cannot be decoded": {
			nft("insert rule inet istio-ambient-nat istio-output limit rate 1/second accept"), upstreamtest.NFT, "v4 nat output: another rule, v4 -> opaque",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := sandboxtest.NewPod(t)
			u := upstream.PodRules{Generation: upstream.GenerationRedirect, DNS: true}
			if test.by == upstreamtest.NFT {
				u.Generation = upstream.GenerationNative
			}
			upstreamtest.Install(t, pod.File(), u, test.by)
			test.change(t, pod)
			found := recognise(t, pod, test.by)
			named := func(line string) bool { return strings.HasPrefix(line, test.want) }
			if len(found) != 1 || !slices.ContainsFunc(found[0].Differences, named) {
				t.Errorf("found %+v, want the difference %q", found, test.want)
			}
		})
	}
}

// TestRecogniseSeveral has the rules of both flavours of iptables in a namespace, as they are when
// the agent's choice has changed: both are recognised.
func TestRecogniseSeveral(t *testing.T) {
	t.Parallel()
	pod := sandboxtest.NewPod(t)
	want := upstream.PodRules{Generation: upstream.GenerationRedirect, DNS: true, IPv6: true}
	upstreamtest.Install(t, pod.File(), want, upstreamtest.IPTablesLegacy)
	upstreamtest.InstallRules(t, pod.File(), want, upstreamtest.IPTablesNFT)
	found := recognise(t, pod, upstreamtest.IPTablesNFT)
	if len(found) != 2 || found[0].Program != upstream.ProgramIPTablesNFT || found[1].Program != upstream.ProgramIPTablesLegacy {
		t.Fatalf("found %+v, want the rules of two programs", found)
	}
	for _, r := range found {
		if !reflect.DeepEqual(r.Rules, want) || r.Differences != nil {
			t.Errorf("%s: found %+v with differences %q, want %+v", r.Program, r.Rules, r.Differences, want)
		}
	}
}

// TestRecogniseOurOwn has the owner istio-ambient write its plan by each dataplane. Its chains and
// tables are not those of Istio's agent, also for a dataplane that has not written them.
func TestRecogniseOurOwn(t *testing.T) {
	t.Parallel()
	plan, err := ambient.PodPlan(ambient.DefaultOverrides(true), ambient.IstioNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, "istio-ambient")
	if err != nil {
		t.Fatal(err)
	}
	for name, backend := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := sandboxtest.NewPod(t)
			if err := backend.Apply(t.Context(), pod.Netns, plan); err != nil {
				t.Fatal(err)
			}
			for _, program := range upstreamtest.Programs() {
				if found := recognise(t, pod, program); found != nil {
					t.Errorf("the reader of %s takes them for %+v", program, found)
				}
			}
		})
	}
}
