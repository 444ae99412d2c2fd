// SPDX-License-Identifier: Apache-2.0

package proof_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// excluding returns the default plan with excluded prefixes that cannot be joined, and half as many
// excluded ports.
func excluding(b *testing.B, n int) *interception.Plan {
	b.Helper()
	redirect, _, err := sidecar.Istio().Parse(interception.Pod{})
	if err != nil {
		b.Fatal(err)
	}
	prefixes, ports := make([]netip.Prefix, n), make([]interception.Port, n/2)
	for i := range prefixes {
		var addr [4]byte
		binary.BigEndian.PutUint32(addr[:], 10<<24|uint32(i)*2654435761>>8)
		prefixes[i] = netip.PrefixFrom(netip.AddrFrom4(addr), 32)
	}
	for i := range ports {
		ports[i] = interception.Port(i * 131)
	}
	redirect.Outbound.Exclude = interception.Prefixes(prefixes...)
	redirect.Outbound.ExcludePorts = redirect.Outbound.ExcludePorts.Union(interception.Ports(ports...))
	plan, err := sidecar.Plan(redirect, interception.Facts{IPv6: true}, "my-mesh")
	if err != nil {
		b.Fatal(err)
	}
	return plan
}

// Each answer against the size of the plan, as a multiple of the answer for the default plan
// without exclusions in the same run.
func Benchmark(b *testing.B) {
	for _, question := range []struct {
		name string
		ask  func(plan *interception.Plan) error
	}{
		{"Equivalent", func(plan *interception.Plan) error {
			got, err := proof.Equivalent(plan, plan, proof.Options{})
			if err == nil && got.Answer != proof.Yes {
				err = fmt.Errorf("%s", got)
			}
			return err
		}},
		{"Explain", func(plan *interception.Plan) error {
			_, err := proof.Explain(plan, proof.Query{}, proof.Options{})
			return err
		}},
		{"Lint", func(plan *interception.Plan) error {
			_, err := proof.Lint(plan, proof.Options{})
			return err
		}},
	} {
		small := excluding(b, 0)
		for _, size := range []int{0, 10, 100, 1000, 10000} {
			plan := excluding(b, size)
			b.Run(fmt.Sprintf("%s/%d", question.name, size), func(b *testing.B) {
				var own, reference time.Duration
				for b.Loop() {
					for _, each := range []struct {
						plan *interception.Plan
						sum  *time.Duration
					}{{small, &reference}, {plan, &own}} {
						start := time.Now()
						if err := question.ask(each.plan); err != nil {
							b.Fatal(err)
						}
						*each.sum += time.Since(start)
					}
				}
				b.ReportMetric(float64(own)/float64(reference), "x-default")
				b.ReportMetric(float64(own.Milliseconds())/float64(b.N), "ms")
			})
		}
	}
}
