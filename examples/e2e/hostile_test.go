// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

const (
	hostileFor = 3 * time.Minute // for each neighbour, all at once
	soakedFor  = 10 * time.Minute
)

// hostileSpan returns how long neighbours write: as long as a soak, within limits.
func hostileSpan() time.Duration { return max(hostileFor, min(*soakFor, soakedFor)) }

// TestHostileNeighbour runs another program on each of three nodes that keeps writing the network's
// list without the plugin, while pods start. The plugin is missing for less than a hundredth of the
// time. Pods of the mesh that start in these gaps are repaired in place.
func TestHostileNeighbour(t *testing.T) {
	suite.Long(t)
	expectHostileTime(t, true)
}

// TestHostileNeighbourReported is the same without repair in place: only pods of the mesh that
// start in a gap get an event.
func TestHostileNeighbourReported(t *testing.T) {
	suite.Long(t)
	pods := expectHostileTime(t, false)
	pods.s.Do("list events", func(ctx context.Context) error {
		events, err := pods.s.Cluster.Client.CoreV1().Events(pods.s.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "source=cni-repair"})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if !slices.ContainsFunc(pods.escapes, func(of escape) bool { return of.pod == e.InvolvedObject.Name }) {
				t.Errorf("pod %s was captured, and has the event %s: %s", e.InvolvedObject.Name, e.Reason, e.Message)
			}
		}
		return nil
	})
}

// expectHostileTime installs the product, with or without repair in place, and runs neighbours on
// three nodes while pods start and stop.
func expectHostileTime(t *testing.T, inPlace bool) *churn {
	t.Helper()
	s := suite.BeginAsItIs(t)
	another := s.AddNode(s.Node(cluster.BridgeNetwork))
	s.AwaitNode(another, true)
	repairing(s, inPlace, scenario.Values{"repairResync": repairResync.String()})
	pods := &churn{
		s: s, perNode: 1, reported: !inPlace, servers: map[*cluster.Node]*corev1.Pod{}, spans: map[string]span{}, live: map[string]*corev1.Pod{},
	}
	all := neighbours(s.Bridge, s.PointToPoint, another)
	for _, n := range all {
		s.Daemon(n.node)
		s.Await("the daemon's process on "+n.node.Name, func(context.Context) (bool, error) {
			pid := (&soaked{Node: n.node}).pid("install-cni")
			n.daemon = n.node.Path("/proc/" + pid)
			return pid != "", nil
		})
		pods.servers[n.node] = s.Pod(scenario.Workload{Name: "server-on-" + n.node.Name, Node: n.node.Name})
	}
	failures := hostileTime(t.Context(), hostileSpan(), pods, all)
	for _, n := range all {
		n.expect(t)
	}
	t.Logf("%d pods came; %d of the mesh were ready before they were captured", len(pods.spans), len(pods.escapes))
	for _, e := range pods.escapes {
		t.Logf("%s on %s: %s; after %v it was as it should be", e.pod, e.node.Name, e.seen, e.repaired.Round(time.Millisecond))
	}
	if err := errors.Join(append(failures, pods.failures...)...); err != nil || len(pods.spans) == 0 {
		t.Errorf("after %d pods: %v", len(pods.spans), err)
	}
	return pods
}

// hostileTime starts and stops pods beside the neighbours for some time, and waits until all are as
// they should be.
func hostileTime(ctx context.Context, lasts time.Duration, pods *churn, all []*neighbour) (failures []error) {
	ctx, end := context.WithTimeout(ctx, lasts)
	defer end()
	var working sync.WaitGroup
	var mu sync.Mutex
	for _, n := range all {
		working.Go(func() {
			if err := n.run(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failures = append(failures, fmt.Errorf("neighbour %s: %w", n.name, err))
			}
		})
	}
	pods.start(ctx)
	working.Wait()
	pods.group.Wait()
	return failures
}
