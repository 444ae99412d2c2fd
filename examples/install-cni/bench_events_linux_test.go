// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// How fast another program changes files, for how long, and how much of a core the daemon may use
// meanwhile.
const (
	eventsPerSecond = 17_900
	eventsFor       = 10 * time.Second
	mostCores       = 0.3
)

// BenchmarkFileEvents: another program writes to files of a directory that the released daemon
// watches, thousands of times a second. It reports how much of a core the daemon uses.
func BenchmarkFileEvents(b *testing.B) {
	programs := buildReleased(b)
	for _, watched := range []struct {
		name string
		of   func(n *testNode) string
	}{
		{"net.d", func(n *testNode) string { return n.netDir }},
		{"run-directory", func(n *testNode) string { return n.runDir }},
	} {
		b.Run(watched.name, func(b *testing.B) {
			for b.Loop() {
				n := startReleased(b, programs, 0)
				begun, before := time.Now(), cpuTime(b, n.processes["daemon"])
				events := disturb(b, watched.of(n.testNode))
				took := time.Since(begun).Seconds()
				b.ReportMetric(float64(events)/took, "events/s")
				atMost(b, (cpuTime(b, n.processes["daemon"])-before).Seconds()/took, "cores", mostCores)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// disturb writes to two files in turn, so that the kernel makes an event of each write, and returns
// the number of writes.
func disturb(b *testing.B, directory string) (events int) {
	b.Helper()
	var files [2]*os.File
	for i := range files {
		file, err := os.Create(filepath.Join(directory, fmt.Sprintf("99-other-%d.conflist", i)))
		if err != nil {
			b.Fatal(err)
		}
		defer file.Close()
		files[i] = file
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < eventsFor; <-tick.C {
		for due := int(time.Since(begun).Seconds() * eventsPerSecond); events < due; events++ {
			if _, err := files[events%2].WriteAt([]byte("x"), 0); err != nil {
				b.Fatal(err)
			}
		}
	}
	return events
}

// cpuTime returns the CPU time of a process, proc_pid_stat(5).
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	const tick = time.Second / 100 // sysconf(_SC_CLK_TCK)
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ") // the program's name contains neither
	fields := strings.Fields(rest)
	var sum time.Duration
	for _, field := range fields[11:13] { // utime and stime
		ticks, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(ticks) * tick
	}
	return sum
}
