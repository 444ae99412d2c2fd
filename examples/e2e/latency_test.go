// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

var latencyPods = flag.Int("latency-pods", 2, "how many pods TestPodStartLatency starts with the plugin, and without")

// TestPodStartLatency starts the same injected pod with and without the plugin in the configuration
// list, in turns, on two nodes that are otherwise alike. It reports the plugin's cost for the
// sandbox, as the kubelet measures it, and from the pod's creation until it is ready. The latter
// includes up to a second until the kubelet checks again.
func TestPodStartLatency(t *testing.T) {
	suite.Long(t)
	s := suite.BeginAsItIs(t)
	bare := s.AddNode(s.Node(cluster.BridgeNetwork))
	s.AwaitNode(bare, true)
	p := &permissions{Scenario: s, t: t}
	p.selectNodes()
	s.Do("install on selected nodes", func(ctx context.Context) error {
		return s.Install(ctx, scenario.Values{"nodeSelector": scenario.Values{selected: "yes"}})
	})
	s.Do("select one no more", func(ctx context.Context) error { return p.label(ctx, bare, "null") })
	s.Await("the end of the plugin on "+bare.Name, func(context.Context) (bool, error) {
		return !strings.Contains(s.NetworkFiles(bare)[cluster.FileName], "istio-cni"), nil
	})
	var with, without latencies
	for turn := range *latencyPods {
		with.add(startTimed(t, s, fmt.Sprintf("with-%d", turn), s.Bridge))
		without.add(startTimed(t, s, fmt.Sprintf("without-%d", turn), bare))
	}
	for _, row := range []struct {
		of            string
		with, without []time.Duration
	}{{"RunPodSandbox", with.sandbox, without.sandbox}, {"created to ready", with.ready, without.ready}} {
		a, b := median(row.with), median(row.without)
		t.Logf("%-16s  with the plugin %v, without %v, ratio %.3f (medians of %d pods each)",
			row.of, a.Round(100*time.Microsecond), b.Round(100*time.Microsecond), float64(a)/float64(b), len(row.with))
	}
}

type latencies struct{ sandbox, ready []time.Duration }

func (l *latencies) add(sandbox, ready time.Duration) {
	l.sandbox, l.ready = append(l.sandbox, sandbox), append(l.ready, ready)
}

func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func startTimed(t *testing.T, s *scenario.Scenario, name string, node *cluster.Node) (sandbox, ready time.Duration) {
	t.Helper()
	w := scenario.Workload{Name: name, Injected: true, Node: node.Name, Change: func(template *corev1.PodTemplateSpec) {
		template.Spec.Containers[0].ReadinessProbe = nil // the probe runs once a second
		template.Spec.TerminationGracePeriodSeconds = new(int64(1))
	}}
	before, ran := sandboxTime(s, node)
	time.Sleep(rand.N(time.Second)) //nolint:forbidigo // pods must not all start at the same moment of a second
	s.Do("start pod "+name, func(ctx context.Context) error {
		pods, err := s.Cluster.Client.CoreV1().Pods(s.Namespace).Watch(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		defer pods.Stop()
		begin := time.Now()
		s.Start(w)
		for event := range pods.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type != watch.Deleted && scenario.Ready(pod) {
				ready = time.Since(begin)
				return nil
			}
		}
		return fmt.Errorf("the API server has sent nothing more about the pod: %w", ctx.Err())
	})
	after, runs := sandboxTime(s, node)
	if runs != ran+1 {
		t.Errorf("%s has made %d sandboxes for %s", node.Name, runs-ran, name)
	}
	s.Delete(s.AwaitPod(w))
	return after - before, ready
}

// sandboxTime returns the total time that a node's kubelet has waited for the runtime to create
// sandboxes, and their number.
func sandboxTime(s *scenario.Scenario, node *cluster.Node) (in time.Duration, sandboxes int) {
	const sum = `kubelet_runtime_operations_duration_seconds_sum{operation_type="run_podsandbox"} `
	const count = `kubelet_runtime_operations_duration_seconds_count{operation_type="run_podsandbox"} `
	s.Do("metrics of "+node.Name, func(ctx context.Context) error {
		of := s.Cluster.Client.CoreV1().RESTClient().Get().Resource("nodes").Name(node.Name)
		text, err := of.SubResource("proxy").Suffix("metrics").DoRaw(ctx)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			if value, found := strings.CutPrefix(line, sum); found {
				seconds, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return err
				}
				in = time.Duration(seconds * float64(time.Second))
			}
			if value, found := strings.CutPrefix(line, count); found {
				if sandboxes, err = strconv.Atoi(value); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return in, sandboxes
}
