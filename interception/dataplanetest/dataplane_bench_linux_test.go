// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"context"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// BenchmarkDataplane applies the default plan to a fresh namespace, again, and with a change,
// observes it, and removes it. The ratio is to nftables' first step, the fresh Apply, in the same
// run.
func BenchmarkDataplane(b *testing.B) {
	facts := interception.Facts{IPv6: true}
	plan := sidecarPlan(b, facts, func(*sidecar.Redirect) {})
	changed := sidecarPlan(b, facts, func(r *sidecar.Redirect) { r.Outbound.ExcludePorts = interception.Ports(9999) })
	var first float64
	for _, backend := range backends(b) {
		d := backend.dataplane
		for _, step := range []struct {
			name string
			do   func(ctx context.Context, ns *interception.Netns) error
		}{
			{"fresh", func(ctx context.Context, ns *interception.Netns) error { return d.Apply(ctx, ns, plan) }},
			{"unchanged", func(ctx context.Context, ns *interception.Netns) error { return d.Apply(ctx, ns, plan) }},
			{"changed", func(ctx context.Context, ns *interception.Netns) error { return d.Apply(ctx, ns, changed) }},
			{"observe", func(ctx context.Context, ns *interception.Netns) error {
				_, err := d.Observe(ctx, ns, plan.Owner)
				return err
			}},
			{"remove", func(ctx context.Context, ns *interception.Netns) error { return d.Remove(ctx, ns, plan.Owner) }},
		} {
			b.Run(backend.name+"/"+step.name, func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					h := newHost(b)
					if step.name != "fresh" {
						h.apply(b, d, plan)
					}
					b.StartTimer()
					err := step.do(b.Context(), h.Netns)
					b.StopTimer()
					h.close(b)
					if err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				each := float64(b.Elapsed()) / float64(b.N)
				if first == 0 {
					first = each
				}
				b.ReportMetric(each/first, "x-nftables-fresh")
			})
		}
	}
}
