// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/footprint"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// The waves.
const (
	waves  = 10
	atOnce = 16
)

// BenchmarkWaves runs the released binaries on a node of 100 pods, and replaces all pods again and
// again: each new pod is requested and reported as the plugin does at ADD. Afterwards, both
// processes together are within the budget of idle ones.
func BenchmarkWaves(b *testing.B) {
	programs := buildReleased(b)
	for b.Loop() {
		n := newNode(b)
		n.write(n.netDir, "10-calico.conflist", calico, 0o644)
		cluster := serveCluster(b, n, budgetPods)
		daemon, _ := n.startProgram(filepath.Join(programs, "install-cni"))
		agent := podsource.Agent{RunDir: n.runDir}
		if _, err := agent.Pod(b.Context(), podsource.Ref{Namespace: "shop", Name: "web-0", UID: "uid-0"}); err != nil {
			b.Fatal(err)
		}
		processes := map[string]int{"daemon": daemon.Process.Pid, "watcher": childOf(b, daemon.Process.Pid)}
		for wave := range waves {
			replacePods(b, cluster, agent, wave)
		}
		b.ReportMetric(resident(b, processes, "VmRSS"), "rss-MiB-in-waves")
		time.Sleep(footprint.Quiet + 2*time.Second) // a benchmark takes real time
		atMost(b, resident(b, processes, "VmRSS"), "rss-MiB-after", mostResident)
		atMost(b, resident(b, processes, "RssAnon"), "anon-MiB-after", mostAnonymous)
	}
	b.ReportMetric(0, "ns/op")
}

// resident returns the memory of some processes together, in MiB.
func resident(b *testing.B, processes map[string]int, field string) (sum float64) {
	b.Helper()
	for _, pid := range processes {
		sum += float64(kibibytes(b, pid, field)) / 1024
	}
	return sum
}

// replacePods replaces all pods of the node by others of the same names.
func replacePods(b *testing.B, cluster *fakecluster.Cluster, agent podsource.Agent, wave int) {
	b.Helper()
	var group sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range budgetPods {
		group.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			name, uid := fmt.Sprintf("web-%d", i), fmt.Sprintf("uid-%d-%d", i, wave)
			cluster.Delete("shop", name)
			cluster.Put(fakecluster.Pod{Namespace: "shop", Name: name, UID: uid, Node: "node-1"})
			ref := podsource.Ref{Namespace: "shop", Name: name, UID: uid}
			if _, err := agent.Pod(b.Context(), ref); err != nil {
				b.Error(err)
			}
			result := podsource.Result{Command: "ADD", Namespace: "shop", Name: name, Captured: true, Reason: string(sidecar.ReasonInMesh)}
			entry := podsource.LogEntry{Time: time.Now(), Message: "pod is captured", Attributes: map[string]string{"pod": ref.String()}}
			reported, logged := agent.Tell(b.Context(), []podsource.Result{result}, []podsource.LogEntry{entry})
			if err := errors.Join(reported, logged); err != nil {
				b.Error(err)
			}
		})
	}
	group.Wait()
}
