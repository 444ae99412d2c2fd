// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
)

// WhilePodsStart runs a function while injected pods start on all nodes, one after the other on
// each. The client queries each pod. All must be captured, and start without trouble.
func (s *Scenario) WhilePodsStart(client *corev1.Pod, work func()) {
	s.t.Helper()
	s.WhilePodsStartOrWait(client, work)
	s.expectNoTrouble()
}

// WhilePodsStartOrWait is [Scenario.WhilePodsStart] where the plugin may make a pod wait: the
// kubelet retries, and the pod must be captured when it starts.
func (s *Scenario) WhilePodsStartOrWait(client *corev1.Pod, work func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	var results []<-chan started
	for _, node := range s.Cluster.Nodes() {
		result := make(chan started, 1)
		results = append(results, result)
		go func() { result <- s.startPods(ctx, node, client) }()
	}
	work()
	cancel()
	for _, result := range results {
		r := <-result
		s.t.Logf("%d pods started on %s meanwhile", r.pods, r.node)
		if r.err != nil {
			s.t.Errorf("on %s: %v", r.node, r.err)
		}
		if r.pods == 0 {
			s.t.Errorf("on %s no pod started", r.node)
		}
	}
}

// started is the result of starting pods on a node.
type started struct {
	node string
	pods int
	err  error
}

// startPods starts, queries and deletes pods on a node until the context ends, and finishes the
// last one.
func (s *Scenario) startPods(ctx context.Context, node *cluster.Node, client *corev1.Pod) started {
	result := started{node: node.Name}
	for ctx.Err() == nil && result.err == nil {
		result.pods++
		result.err = s.startPod(Workload{
			Name: fmt.Sprintf("%s-%d", node.Name, s.names.Add(1)), Injected: true, Node: node.Name,
		}, client)
	}
	return result
}

// startPod starts a pod, makes the client query it, and deletes it.
func (s *Scenario) startPod(w Workload, client *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	pods := s.client().CoreV1().Pods(s.Namespace)
	pod, err := pods.Create(ctx, w.Pod(), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for !Ready(pod) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("pod %s isn't ready after %v: %+v", w.Name, most, pod.Status)
		case <-time.After(100 * time.Millisecond):
		}
		if pod, err = pods.Get(ctx, w.Name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	for _, url := range URLs(pod, 8080) {
		answer, err := s.Ask(client, url)
		if err != nil {
			return err
		}
		if !slices.Equal(answer.Via, []string{"inbound " + w.Name}) {
			return fmt.Errorf("pod %s has escaped: it was asked at %s via %q", w.Name, url, answer.Via)
		}
	}
	return pods.Delete(ctx, w.Name, metav1.DeleteOptions{})
}

// expectNoTrouble fails on events of pods that could not be created or deleted.
func (s *Scenario) expectNoTrouble() {
	s.t.Helper()
	s.Do("list events", func(ctx context.Context) error {
		events, err := s.client().CoreV1().Events(s.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if slices.Contains([]string{"FailedCreatePodSandBox", "FailedKillPod"}, event.Reason) {
				s.t.Errorf("%s: %s: %s", event.InvolvedObject.Name, event.Reason, event.Message)
			}
		}
		return nil
	})
}
