// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
)

// BenchmarkDataplane applies the default plan to a fresh namespace, again, with a change, reads it back, and takes it away.
func BenchmarkDataplane(b *testing.B) {
	redirect, _, err := interception.Istio().Parse(interception.Pod{
		Namespace: "shop", Name: "cart", Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
		Containers: []interception.Container{{Name: "app"}, {Name: "istio-proxy"}},
	})
	if err != nil {
		b.Fatal(err)
	}
	plan, err := interception.PlanSidecar(redirect, interception.Facts{IPv6: true}, "istio-cni")
	if err != nil {
		b.Fatal(err)
	}
	redirect.Outbound.ExcludePorts = interception.Ports(9999)
	changed, err := interception.PlanSidecar(redirect, interception.Facts{IPv6: true}, "istio-cni")
	if err != nil {
		b.Fatal(err)
	}
	for _, flavour := range []iptables.Flavour{iptables.Legacy, iptables.NFT} {
		dp := dataplane(b, iptables.Options{Flavour: flavour})
		for _, step := range []struct {
			name string
			do   func(*pod) error
		}{
			{"fresh", func(p *pod) error { return dp.Apply(b.Context(), p.Netns, plan) }},
			{"unchanged", func(p *pod) error { return dp.Apply(b.Context(), p.Netns, plan) }},
			{"changed", func(p *pod) error { return dp.Apply(b.Context(), p.Netns, changed) }},
			{"observe", func(p *pod) error { _, err := dp.Observe(b.Context(), p.Netns, plan.Owner); return err }},
			{"remove", func(p *pod) error { return dp.Remove(b.Context(), p.Netns, plan.Owner) }},
		} {
			b.Run(string(flavour)+"/"+step.name, func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					ns := newPod(b)
					if step.name != "fresh" {
						if err := dp.Apply(b.Context(), ns.Netns, plan); err != nil {
							b.Fatal(err)
						}
					}
					b.StartTimer()
					if err := step.do(ns); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
