// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"runtime"
	"testing"

	"github.com/meshcni/meshcni/internal/testing/bareproxy"
)

// The limits of what the agent keeps for each pod at rest.
const (
	mostDescriptors = 2.0
	mostMemory      = 16.0 // KiB of the heap
)

// BenchmarkFootprint counts what the agent keeps for each of 200 pods that are enrolled. The proxy
// keeps nothing: its listeners are there before.
func BenchmarkFootprint(b *testing.B) {
	n := newNode(b)
	a, _ := n.run()
	const pods = 200
	var all []barePod
	for i := range pods {
		pod := n.bare(i)
		bareproxy.Listen(b, pod.file, n.options.Numbers)
		all = append(all, pod)
	}
	bareproxy.Acknowledge(b, n.options.Socket)
	n.enrol(a, all[0]) // what is there once, for all pods
	for _, pod := range all[1:] {
		if err := pod.file.Close(); err != nil {
			b.Fatal(err)
		}
	}
	var descriptors, memory float64
	for b.Loop() {
		files, heap := footprint(b)
		for _, pod := range all[1:] {
			var err error
			if pod.file, err = os.Open(pod.file.Name()); err != nil { // which the agent takes over
				b.Fatal(err)
			}
			n.enrol(a, pod)
		}
		filesAfter, heapAfter := footprint(b)
		// The first time counts: to enrol the pods again adds nothing.
		descriptors, memory = max(descriptors, float64(filesAfter-files)/(pods-1)), max(memory, float64(heapAfter-heap)/(pods-1)/1024)
	}
	b.ReportMetric(descriptors, "descriptors/pod")
	b.ReportMetric(memory, "KiB/pod")
	if descriptors > mostDescriptors || memory > mostMemory {
		b.Errorf("NOT MET: %.2f descriptors and %.1f KiB for each pod, and the limits are %.0f and %.0f", descriptors, memory, mostDescriptors, mostMemory)
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
