// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/interception"
)

// The limits of what the agent keeps for each pod at rest: those of the capture in the pods.
const (
	mostDescriptors = 2.0
	mostMemory      = 16.0 // KiB of the heap
)

// BenchmarkFootprint counts what the agent keeps for each of 200 pods that are enrolled.
func BenchmarkFootprint(b *testing.B) {
	const pods = 200
	n := newNode(b, backends(b)["nftables"])
	proxy, _ := n.proxy()
	n.run()
	all := []ambient.Pod{bare(0)}
	n.feed <- told(proxy, all[0])
	n.awaitStatus(all[0].UID, ambient.StatusEnabled) // what is there once, for all pods
	for i := range pods {
		all = append(all, bare(i+1))
	}
	var descriptors, memory float64
	for b.Loop() {
		files, heap := footprint(b)
		n.feed <- ambient.Change{Pods: all}
		for _, pod := range all {
			n.awaitStatus(pod.UID, ambient.StatusEnabled)
		}
		filesAfter, heapAfter := footprint(b)
		// The first time counts: to tell of the pods again adds nothing.
		descriptors, memory = max(descriptors, float64(filesAfter-files)/pods), max(memory, float64(heapAfter-heap)/pods/1024)
	}
	b.ReportMetric(descriptors, "descriptors/pod")
	b.ReportMetric(memory, "KiB/pod")
	if descriptors > mostDescriptors || memory > mostMemory {
		b.Errorf("NOT MET: %.2f descriptors and %.1f KiB for each pod, and the limits are %.0f and %.0f", descriptors, memory, mostDescriptors, mostMemory)
	}
}

// bare is a pod of which the agent learns by the feed alone.
func bare(number int) ambient.Pod {
	last := byte(number)
	return ambient.Pod{
		Phase: "Running",
		Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 1, 0, last}), netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 15: last}),
		},
		Pod: interception.Pod{
			Namespace: "shop", Name: fmt.Sprint("bare-", number), UID: fmt.Sprintf("5d0e2f1e-9d3c-4f7a-8a51-%012d", number),
			Labels: map[string]string{"istio.io/dataplane-mode": "ambient"},
		},
	}
}

// footprint returns the descriptors and the bytes of the heap that are in use.
func footprint(b *testing.B) (files int, heap int64) {
	b.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	runtime.GC() // what finalizers have let go of
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return len(entries), int64(stats.HeapAlloc)
}

// The limits of BenchmarkHeal: the rules of the host are back within a second.
const (
	mostHeal = 1000.0 // ms
	heals    = 10
)

// BenchmarkHeal flushes all rules of the host while a pod is meshed, as a reload of firewalld does,
// and waits until the rules and the members are there again.
func BenchmarkHeal(b *testing.B) {
	for _, name := range []string{"nftables", "iptables-nft", "iptables-legacy"} {
		n := newNode(b, backends(b)[name])
		proxy, _ := n.proxy()
		web := n.pod()
		var healed atomic.Int64
		n.options.Count = func(c agent.Count) {
			if c.What == agent.CountHealed && c.Of == "host" {
				n.news(func() { healed.Add(1) })
			}
		}
		n.run()
		n.feed <- told(proxy, web)
		n.awaitStatus(web.UID, ambient.StatusEnabled)
		var took []float64
		for range heals {
			before, began := healed.Load(), time.Now()
			n.flushHost(name)
			n.await("the rules are back", func() bool { return healed.Load() > before && len(n.members()) == len(web.Addresses) })
			took = append(took, float64(time.Since(began))/float64(time.Millisecond))
		}
		slices.Sort(took)
		median := took[len(took)/2]
		b.ReportMetric(median, "ms/heal-"+name)
		if median > mostHeal {
			b.Errorf("NOT MET: with %s the rules return after %.0f ms, and the limit is %.0f", name, median, mostHeal)
		}
	}
}
