// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/internal/testing/fakecluster"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

// The size of BenchmarkRound: many more pods than a node has.
const (
	benchmarked       = 5000
	benchmarkedBroken = 50
	benchmarkedBurst  = 10
	benchmarkedEvery  = 20 * time.Millisecond
)

// BenchmarkRound has 50 broken pods among 5,000. A round finds them, and labels all at the rate of
// the limits. It prints how long the first round took, the number of writes beyond the rate (0),
// and the controller's memory for each pod.
func BenchmarkRound(b *testing.B) {
	b.ReportAllocs()
	for range b.N {
		cluster := fakecluster.New()
		for i := range benchmarked {
			p := pod(fmt.Sprintf("web-%04d", i), validated(0))
			if i%(benchmarked/benchmarkedBroken) == 0 {
				p = broken(p.Name)
			}
			cluster.Put(p)
		}
		o := options(repair.ModeLabel)
		o.Limits = limits(benchmarkedBurst, benchmarkedEvery)
		before := heap()
		begin := time.Now()
		f := startAt(b, cluster, o)
		f.awaitScan(b)
		found := time.Since(begin)
		if n := f.Status().Pods[repair.Broken]; n != benchmarkedBroken {
			b.Fatalf("%d pods are found broken, and %d are", n, benchmarkedBroken)
		}
		f.awaitDone(b, repair.ModeLabel, controller.ResultSuccess, benchmarkedBroken)
		b.ReportMetric(found.Seconds(), "s/round")
		b.ReportMetric(float64(beyond(cluster.Writes())), "writes-over-limit")
		b.ReportMetric(float64(heap()-before)/benchmarked, "B/pod")
		b.ReportMetric(float64(resident(b))/(1<<20), "VmRSS-MiB")
		f.end()
	}
}

// beyond returns how many labels were written earlier than the limit allows.
func beyond(writes []fakecluster.Write) int {
	var at []time.Time
	for _, w := range writes {
		if w.Method == http.MethodPatch {
			at = append(at, w.Time)
		}
	}
	over := 0
	for i := benchmarkedBurst; i < len(at); i++ {
		// A request takes a while: the first of a window may arrive late.
		if at[i].Sub(at[0]) < time.Duration(i-benchmarkedBurst)*benchmarkedEvery {
			over++
		}
	}
	return over
}

// heap returns the memory in use.
func heap() uint64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// resident returns VmRSS (proc_pid_status(5)) in bytes, which includes the fake cluster's memory.
func resident(b *testing.B) int {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		b.Fatal(err)
	}
	return kib << 10
}
