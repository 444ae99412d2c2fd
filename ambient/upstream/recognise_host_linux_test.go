// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/upstreamtest"
)

func recogniseHost(t *testing.T, host *sandboxtest.Pod, program upstreamtest.Program) []upstream.Recognised {
	t.Helper()
	state, err := reader(t, program).Observe(t.Context(), host.Netns, "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	found, err := upstream.RecogniseHost(state.Foreign, ambient.IstioNumbers())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// someMembers are the members of upstream's sets, with the pods' UIDs.
func someMembers() map[netip.Addr]string {
	return map[netip.Addr]string{netip.MustParseAddr("10.244.1.10"): "a", netip.MustParseAddr("fd00:10:244:1::a"): "a"}
}

// TestRecogniseHost has the rules of Istio's node agent on a host, beside those of other programs.
func TestRecogniseHost(t *testing.T) {
	t.Parallel()
	for _, program := range upstreamtest.Programs() {
		for _, ipv6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, IPv6 %t", program, ipv6), func(t *testing.T) {
				t.Parallel()
				host := sandboxtest.NewPod(t)
				host.Run(t, "*nat\n-N KUBE-POSTROUTING\n-A POSTROUTING -j KUBE-POSTROUTING\n-A KUBE-POSTROUTING -j MASQUERADE\nCOMMIT\n",
					"iptables-nft-restore", "--noflush")
				if found := recogniseHost(t, host, program); found != nil {
					t.Errorf("without such rules: %+v", found)
				}
				upstreamtest.InstallHost(t, host.File(), ipv6, program, someMembers())
				found := recogniseHost(t, host, program)
				if len(found) != 1 || found[0].Program != program || found[0].Rules.IPv6 != ipv6 || found[0].Differences != nil {
					t.Errorf("found %+v, want the rules of %s without a difference", found, program)
				}
			})
		}
	}
}

// TestRecogniseHostDifferences changes such rules, or has others of the same names.
func TestRecogniseHostDifferences(t *testing.T) {
	t.Parallel()
	restore := func(lines string) func(*testing.T, *sandboxtest.Pod) {
		return func(t *testing.T, host *sandboxtest.Pod) {
			t.Helper()
			host.Run(t, "*nat\n"+lines+"\nCOMMIT\n", "iptables-nft-restore", "--noflush")
		}
	}
	nft := func(text string) func(*testing.T, *sandboxtest.Pod) {
		return func(t *testing.T, host *sandboxtest.Pod) {
			t.Helper()
			host.Run(t, text, "nft", "-f", "-")
		}
	}
	for name, test := range map[string]struct {
		change func(*testing.T, *sandboxtest.Pod)
		by     upstreamtest.Program
		want   string
	}{
		"another rule": {
			restore("-A ISTIO_POSTRT -p tcp -j MASQUERADE"), upstreamtest.IPTablesNFT, "v4 nat postrouting: another rule, v4 -> opaque",
		},
		"another address": {
			restore("-A ISTIO_POSTRT -p tcp -j SNAT --to-source 192.0.2.1"), upstreamtest.IPTablesNFT,
			"v4 nat postrouting: another rule, v4 tcp -> snat to 192.0.2.1",
		},
		"another set": {
			restore("-A ISTIO_POSTRT -p tcp -m set --match-set istio-inpod-probes-v4 src -j SNAT --to-source 169.254.7.127"), upstreamtest.IPTablesNFT,
			"v4 nat postrouting: another rule, v4 -> opaque",
		},
		"the rule twice": {
			restore("-A ISTIO_POSTRT -m owner --socket-exists -p tcp -m set --match-set istio-inpod-probes-v4 dst -j SNAT --to-source 169.254.7.127"),
			upstreamtest.IPTablesNFT, "v4 nat postrouting: the rules have another order, or stand there twice",
		},
		"no rule": {restore("-F ISTIO_POSTRT"), upstreamtest.IPTablesNFT, "v4 nat postrouting: missing v4 tcp uid"},
		"a condition": {
			restore("-D POSTROUTING -j ISTIO_POSTRT\n-A POSTROUTING -p tcp -j ISTIO_POSTRT"), upstreamtest.IPTablesNFT,
			"v4 nat postrouting: another rule, v4 tcp -> jump ISTIO_POSTRT",
		},
		"a pod's chain": {restore("-N ISTIO_OUTPUT"), upstreamtest.IPTablesNFT, "ip nat: another rule, chain ISTIO_OUTPUT that no hook leads to"},
		"another rule by nft": {
			nft("add rule inet istio-ambient-nat postrouting tcp dport 9 masquerade"), upstreamtest.NFT, "v6 nat postrouting: another rule, v6 tcp dport 9 -> opaque",
		},
		"another priority by nft": {
			nft("delete chain inet istio-ambient-nat postrouting; add chain inet istio-ambient-nat postrouting { type nat hook postrouting priority 90; }"),
			upstreamtest.NFT, "v4 nat postrouting: another rule, a chain of type nat, priority 90 and policy accept",
		},
		"another set by nft": {
			nft("add set inet istio-ambient-nat other { type ipv4_addr; }\n" +
				"add rule inet istio-ambient-nat postrouting meta l4proto tcp skuid 0 ip daddr @other snat to 169.254.7.127"),
			upstreamtest.NFT, "v4 nat postrouting: another rule, v4 tcp uid 0 dst @other -> snat to 169.254.7.127",
		},
		"all but the set by nft": {
			nft("add rule inet istio-ambient-nat postrouting meta l4proto tcp skuid 0 ip daddr != @istio-inpod-probes-v4 snat to 169.254.7.127"),
			upstreamtest.NFT, "v4 nat postrouting: another rule, v4 tcp uid 0 -> opaque",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := sandboxtest.NewPod(t)
			upstreamtest.InstallHost(t, host.File(), true, test.by, someMembers())
			test.change(t, host)
			found := recogniseHost(t, host, test.by)
			named := func(line string) bool { return strings.HasPrefix(line, test.want) }
			if len(found) != 1 || !slices.ContainsFunc(found[0].Differences, named) {
				t.Errorf("found %+v, want the difference %q", found, test.want)
			}
		})
	}
}

// TestRecogniseOurOwnHost has the owner istio-ambient write the host's plan by each dataplane.
func TestRecogniseOurOwnHost(t *testing.T) {
	t.Parallel()
	plan, err := ambient.HostPlan(ambient.IstioNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, "istio-ambient")
	if err != nil {
		t.Fatal(err)
	}
	for name, backend := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := sandboxtest.NewPod(t)
			if err := backend.Apply(t.Context(), host.Netns, plan); err != nil {
				t.Fatal(err)
			}
			for _, program := range upstreamtest.Programs() {
				if found := recogniseHost(t, host, program); found != nil {
					t.Errorf("the reader of %s takes them for %+v", program, found)
				}
			}
		})
	}
}
