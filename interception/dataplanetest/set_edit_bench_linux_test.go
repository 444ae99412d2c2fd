// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// mostSetEdit is how many times the cost of an edit of 10 members one of 10,000 may cost.
const mostSetEdit = 1.5

// setEditor is what a dataplane with live sets of addresses has.
type setEditor interface {
	UpdateSet(context.Context, *interception.Netns, interception.Owner, interception.SetName, interception.SetEdit) error
}

// BenchmarkUpdateSet compares, in turns, adding a member to a set of 10,000 with adding one to a
// set of 10. Removing it again is not counted: there the kernel of nf_tables waits for readers of
// the set (RCU).
func BenchmarkUpdateSet(b *testing.B) {
	for _, backend := range backends(b) {
		b.Run(backend.name, func(b *testing.B) { benchmarkUpdateSet(b, backend.dataplane) })
	}
}

func benchmarkUpdateSet(b *testing.B, d interception.Dataplane) {
	b.Helper()
	editor, ok := d.(setEditor)
	if !ok {
		b.Fatal("the dataplane has no UpdateSet")
	}
	update := func(h host, edit interception.SetEdit) float64 {
		begin := time.Now()
		if err := editor.UpdateSet(b.Context(), h.Netns, "mesh-test", "pods", edit); err != nil {
			b.Fatal(err)
		}
		return float64(time.Since(begin)) / float64(time.Microsecond)
	}
	plan, err := interception.Build("mesh-test", func(b *interception.Builder) { b.LiveAddresses("pods", interception.IPv4, "addresses come and go") })
	if err != nil {
		b.Fatal(err)
	}
	sizes := []int{10, 10_000}
	hosts, took := make([]host, len(sizes)), make([][]float64, len(sizes))
	for i, size := range sizes {
		hosts[i] = newHost(b)
		defer hosts[i].close(b)
		hosts[i].apply(b, d, plan)
		members := map[netip.Addr]string{}
		for n := range size {
			members[netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)})] = "a pod"
		}
		update(hosts[i], interception.SetEdit{Add: members})
	}
	one := map[netip.Addr]string{netip.AddrFrom4([4]byte{10, 1, 0, 0}): "another pod"}
	for b.Loop() {
		for i, h := range hosts {
			took[i] = append(took[i], update(h, interception.SetEdit{Add: one}))
			update(h, interception.SetEdit{Remove: one})
		}
	}
	few, many := median(took[0]), median(took[1])
	b.ReportMetric(many/few, "of-10,000/of-10")
	b.ReportMetric(many, "µs/edit")
	if len(took[0]) > 20 && many > mostSetEdit*few {
		b.Errorf("NOT MET: an edit at 10,000 members takes %.2f times one at 10, and the limit is %.1f", many/few, mostSetEdit)
	}
}
