// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"fmt"
	"testing"

	"github.com/meshcni/meshcni/interception/choice"
)

// BenchmarkObserve looks at one pod of a node with 1,000 processes and 100 records of other pods.
func BenchmarkObserve(b *testing.B) {
	n, p := newNode(b), pod()
	ns := n.namespace("cni-1", address)
	n.record(ns, "/var/run/netns/cni-1", uid, nil)
	n.result("/var/run/netns/cni-1", uid)
	n.process(ns.Path(), cgroupOf(uid, "cri-containerd"))
	for i := range 1000 {
		n.process("/proc/1/ns/net", cgroupOf(fmt.Sprintf("%08x-0000-4000-8000-000000000000", i/5), "cri-containerd"))
	}
	for i := range 100 {
		n.recordOf(fmt.Sprintf("web-%d", i), ns)
	}
	r := newBench(b, n, choice.NFTables)
	for b.Loop() {
		if seen, err := r.Observe(b.Context(), p); err != nil || seen.State == nil {
			b.Fatal(err)
		}
	}
}
