// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/upstream"
)

// reader returns the dataplane that decodes what a program has written.
func reader(t *testing.T, program upstream.Program) interception.Dataplane {
	t.Helper()
	if program == upstream.NFT {
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

func recognise(t *testing.T, pod *sandboxtest.Pod, program upstream.Program) *ambient.Recognised {
	t.Helper()
	state, err := reader(t, program).Observe(t.Context(), pod.Netns, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	found, err := ambient.Recognise(state.Foreign, ambient.IstioNumbers())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// upstreams returns the rule sets to recognise, with the programs that write them.
func upstreams() map[upstream.Program][]ambient.Upstream {
	all := map[upstream.Program][]ambient.Upstream{}
	for _, program := range upstream.Programs() {
		for _, ipv6 := range []bool{false, true} {
			for _, dns := range []bool{false, true} {
				generations := []ambient.Generation{ambient.GenerationRedirect, ambient.GenerationTProxy, ambient.GenerationTProxyZones}
				if program == upstream.NFT {
					generations = []ambient.Generation{ambient.GenerationNative}
				}
				for i, generation := range generations {
					u := ambient.Upstream{Generation: generation, DNS: dns, IPv6: ipv6}
					if generation == ambient.GenerationTProxyZones && !dns {
						continue // the same as the first one
					}
					if all[program] = append(all[program], u); i > 0 {
						continue
					}
					rerouted := []interception.Interface{"fake1s0f0", "fake1s0f1"}
					for _, further := range []ambient.Upstream{
						{BypassInbound: true}, {BypassInbound: true, Unmarked: true}, {Reroute: rerouted},
						{BypassInbound: true, Reroute: rerouted}, {BypassInbound: true, Unmarked: true, Reroute: rerouted},
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
				upstream.Install(t, pod.File(), want, program)
				found := recognise(t, pod, program)
				if found == nil || !reflect.DeepEqual(found.Upstream, want) || found.Differences != nil {
					t.Errorf("found %+v, want %+v", found, want)
				}
			})
		}
	}
}

// TestRecogniseDifferences changes such rules.
func TestRecogniseDifferences(t *testing.T) {
	t.Parallel()
	u := ambient.Upstream{Generation: ambient.GenerationRedirect, DNS: true}
	for name, test := range map[string]struct{ change, want string }{
		"another rule": {"-A ISTIO_OUTPUT -p tcp --dport 9 -j RETURN", "v4 nat output: another rule, v4 tcp dport 9 -> return"},
		"a missing rule": {
			"-D ISTIO_OUTPUT -p tcp -m mark --mark 0x111/0xfff -j ACCEPT", "v4 nat output: missing v4 tcp mark 0x111/0xfff -> accept",
		},
		"another order": {
			"-D ISTIO_OUTPUT -p tcp -m mark --mark 0x111/0xfff -j ACCEPT\n-A ISTIO_OUTPUT -p tcp -m mark --mark 0x111/0xfff -j ACCEPT",
			"v4 nat output: the rules have another order, or stand there twice",
		},
		"a condition": {
			"-D OUTPUT -j ISTIO_OUTPUT\n-A OUTPUT -p tcp -j ISTIO_OUTPUT", "v4 nat output: another rule, v4 tcp -> jump ISTIO_OUTPUT",
		},
		"no jump": {"-D OUTPUT -j ISTIO_OUTPUT", "v4 nat output: missing v4 out lo dst != 127.0.0.1/32 -> accept"},
		"another port": {
			"-A ISTIO_OUTPUT -p tcp -j REDIRECT --to-ports 15009", "v4 nat output: another rule, v4 tcp -> redirect to :15009",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := sandboxtest.NewPod(t)
			upstream.Install(t, pod.File(), u, upstream.IPTablesNFT)
			pod.Run(t, "*nat\n"+test.change+"\nCOMMIT\n", "iptables-nft-restore", "--noflush")
			found := recognise(t, pod, upstream.IPTablesNFT)
			if found == nil || !slices.Contains(found.Differences, test.want) {
				t.Errorf("found %+v, want the difference %q", found, test.want)
			}
		})
	}
}
