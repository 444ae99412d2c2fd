// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

func BenchmarkTrace(b *testing.B) {
	for _, c := range []struct {
		name     string
		excluded int
	}{{"default", 0}, {"excluded-1000", 1000}} {
		b.Run(c.name, func(b *testing.B) {
			redirect, _, err := sidecar.Istio().Parse(interception.Pod{})
			if err != nil {
				b.Fatal(err)
			}
			redirect.Outbound.Exclude = manyPrefixes(c.excluded)
			plan, err := sidecar.Plan(redirect, interception.Facts{IPv6: true}, "my-mesh")
			if err != nil {
				b.Fatal(err)
			}
			world, packet := trace.Sidecar(plan, trace.SidecarOptions{}), connect(application, "192.0.2.1:80")
			b.ReportAllocs()
			for b.Loop() {
				traced(b, world, packet)
			}
		})
	}
}

// manyPrefixes returns n addresses that no prefix joins.
func manyPrefixes(n int) interception.PrefixSet {
	prefixes := make([]netip.Prefix, n)
	for i := range prefixes {
		var addr [4]byte
		binary.BigEndian.PutUint32(addr[:], 10<<24|uint32(2*i))
		prefixes[i] = netip.PrefixFrom(netip.AddrFrom4(addr), 32)
	}
	return interception.Prefixes(prefixes...)
}
