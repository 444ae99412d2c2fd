// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
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
		n := startReleased(b, programs, budgetPods)
		agent := podsource.Agent{RunDir: n.runDir}
		for wave := range waves {
			replacePods(b, n.cluster, agent, wave)
		}
		b.ReportMetric(n.resident(b, "VmRSS"), "rss-MiB-in-waves")
		time.Sleep(footprint.Quiet + 2*time.Second) // a benchmark takes real time
		atMost(b, n.resident(b, "VmRSS"), "rss-MiB-after", mostResident)
		atMost(b, n.resident(b, "RssAnon"), "anon-MiB-after", mostAnonymous)
	}
	b.ReportMetric(0, "ns/op")
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
