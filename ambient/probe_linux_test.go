// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// kubeProxy is a model of what kube-proxy writes in its nftables mode for a service with one
// endpoint: it masquerades at srcnat what another rule has marked (pkg/proxy/nftables/proxier.go of
// Kubernetes). Here it marks each connection of the node to the pod.
const kubeProxy = `
table ip kube-proxy {
	chain nat-output { type nat hook output priority -100; policy accept; jump services; }
	chain services {
		ip daddr 10.96.0.10 tcp dport 80 jump service
		ip daddr 10.244.1.6 jump mark-for-masquerade
	}
	chain service {
		ip saddr != 10.100.0.0/16 jump mark-for-masquerade
		meta l4proto tcp dnat to 10.244.1.6:8080
	}
	chain mark-for-masquerade { meta mark set meta mark | 0x4000; }
	chain nat-postrouting { type nat hook postrouting priority srcnat; policy accept; jump masquerading; }
	chain masquerading {
		meta mark & 0x4000 == 0 return
		meta mark set meta mark ^ 0x4000
		masquerade fully-random
	}
}
table ip6 kube-proxy {
	chain nat-output { type nat hook output priority -100; policy accept; jump mark-for-masquerade; }
	chain mark-for-masquerade { meta mark set meta mark | 0x4000; }
	chain nat-postrouting { type nat hook postrouting priority srcnat; policy accept; jump masquerading; }
	chain masquerading {
		meta mark & 0x4000 == 0 return
		meta mark set meta mark ^ 0x4000
		masquerade fully-random
	}
}`

// TestProbesBesideKubeProxy has rules of kube-proxy, loaded before the host's plan or after it,
// that masquerade the node's connections to a pod. iptables cannot come before what was loaded
// later.
func TestProbesBesideKubeProxy(t *testing.T) {
	t.Parallel()
	for name, backend := range backends(t) {
		for order, before := range map[string]bool{"loaded before": true, "loaded after": false} {
			if strings.HasPrefix(name, "iptables") && !before {
				continue
			}
			t.Run(name+" "+order, func(t *testing.T) {
				t.Parallel()
				host, editsSets := backend.(hostBackend)
				if !editsSets {
					t.Fatal("the dataplane edits no live sets")
				}
				probeBesideKubeProxy(t, host, before)
			})
		}
	}
}

func probeBesideKubeProxy(t *testing.T, backend hostBackend, before bool) {
	t.Helper()
	node := nodes.New(t)[0]
	pod := node.NewPod("7c1e", interception.IPv4, interception.IPv6)
	serve(t, pod)
	service := netip.MustParseAddrPort("10.96.0.10:80")
	sandboxtest.Run(t, node.Host.Netns.File(), "", "ip", "route", "add", service.Addr().String(), "dev", "veth1")
	load := func() { sandboxtest.Run(t, node.Host.Netns.File(), kubeProxy, "nft", "-f", "-") }
	if before {
		load()
	}
	setHost(t, backend, node.Host, pod)
	if !before {
		load()
	}
	probes := ambient.IstioNumbers().Probes
	wantProbe(t, node.Host, service, probes[0])
	for i, address := range pod.Addresses {
		wantProbe(t, node.Host, netip.AddrPortFrom(address, 8080), probes[i])
	}
}

// hostBackend is a dataplane that can hold the host's rules.
type hostBackend interface {
	interception.Dataplane
	UpdateSet(context.Context, *interception.Netns, interception.Owner, interception.SetName, interception.SetEdit) error
}

// setHost applies the host's plan, and enters the pod in its sets.
func setHost(t *testing.T, backend hostBackend, host, pod *nodes.Place, branches ...ambient.Branch) {
	t.Helper()
	plan, err := ambient.HostPlan(ambient.IstioNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, "test-ambient", branches...)
	if err == nil {
		err = backend.Apply(t.Context(), host.Netns, plan)
	}
	if err != nil {
		t.Fatal(err)
	}
	state, err := backend.Observe(t.Context(), host.Netns, plan.Owner)
	if err != nil {
		t.Fatal(err)
	}
	if drifts := interception.Diff(plan, state); drifts != nil {
		t.Errorf("the host has other rules than those of its plan: %v", drifts)
	}
	for _, address := range pod.Addresses {
		edit := interception.SetEdit{Add: map[netip.Addr]string{address: "7c1e"}}
		if err := backend.UpdateSet(t.Context(), host.Netns, plan.Owner, ambient.ProbeSet(interception.FamilyOf(address)), edit); err != nil {
			t.Fatal(err)
		}
	}
}

// wantProbe connects from the node to an application, which must see the probe address.
func wantProbe(t *testing.T, host *nodes.Place, to netip.AddrPort, from netip.Addr) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // a lost answer would take minutes
	defer cancel()
	if visit, err := host.Visit(ctx, "tcp", to); err != nil || visit.Client.Addr() != from {
		t.Errorf("a probe of %s arrives from %v, %v, want %s", to, visit.Client, err, from)
	}
}

func serve(t *testing.T, pod *nodes.Place) {
	t.Helper()
	stop, err := pod.Serve(8080)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}
