// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

const (
	// mostPod limits how long a pod may take to start or to end, whatever happens to its node
	// meanwhile. Faults and daemon restarts last for seconds, but the kubelet delays a container
	// that was killed repeatedly by minutes, and then retries half a minute later.
	mostPod = 6 * time.Minute
	// keptPods is the number of pods that each starter leaves running.
	keptPods = 2
)

// churn is pods that come and go.
type churn struct {
	s       *scenario.Scenario
	servers map[*cluster.Node]*corev1.Pod // queried by a node's pods
	perNode int                           // concurrent starters on a node
	// reported is true if an uncaptured pod of the mesh is reported by an event, not repaired.
	reported bool
	group    sync.WaitGroup

	mu       sync.Mutex
	spans    map[string]span // of all started pods
	live     map[string]*corev1.Pod
	stopped  int
	escapes  []escape
	failures []error
}

// span is the time in which a pod started; any state of the node within it may have affected the
// pod.
type span struct {
	node        *cluster.Node
	mesh        bool
	begin, made time.Time
}

// escape is a pod of the mesh that was ready and not captured.
type escape struct {
	pod string
	span
	seen     string        // the pod's answer
	repaired time.Duration // the time until it was captured
}

// start starts and stops pods on all nodes until the context ends.
func (c *churn) start(ctx context.Context) {
	for _, node := range c.s.Cluster.Nodes() {
		for number := range c.perNode {
			c.group.Go(func() {
				if err := c.comeAndGo(ctx, node, number); err != nil {
					c.mu.Lock()
					c.failures = append(c.failures, fmt.Errorf("on %s: %w", node.Name, err))
					c.mu.Unlock()
				}
			})
		}
	}
}

// comeAndGo starts and stops pods one after the other, and leaves the last ones running.
func (c *churn) comeAndGo(ctx context.Context, node *cluster.Node, number int) error {
	var kept []*corev1.Pod
	for turn := 0; ctx.Err() == nil; turn++ {
		w := scenario.Workload{Name: fmt.Sprintf("%s-%d-%d", node.Name, number, turn), Node: node.Name}
		switch turn % 4 {
		case 0, 1:
			w.Injected = true
		case 2:
			w.NativeSidecar = true
			w.Annotations = map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "9090,9091"}
		}
		pod, err := c.startPod(node, w)
		if err != nil {
			return err
		}
		if kept = append(kept, pod); len(kept) > keptPods {
			if err := c.stopPod(kept[0]); err != nil {
				return err
			}
			kept = kept[1:]
		}
	}
	return nil
}

// startPod starts a pod, waits until it is ready, and checks whether it is captured, if it should
// be.
func (c *churn) startPod(node *cluster.Node, w scenario.Workload) (*corev1.Pod, error) {
	pod := w.Pod()
	pod.Spec.Containers[0].ReadinessProbe = nil // the probe runs once a second
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	in, now := c.s.Cluster.Client.CoreV1().Pods(c.s.Namespace), span{node: node, mesh: w.Injected || w.NativeSidecar, begin: time.Now()}
	err := patiently(func(ctx context.Context) (bool, error) {
		_, err := in.Create(ctx, pod, metav1.CreateOptions{})
		// The API server may be unreachable.
		return err == nil || apierrors.IsAlreadyExists(err), nil
	})
	if err != nil {
		return nil, fmt.Errorf("pod %s isn't made: %w", w.Name, err)
	}
	err = patiently(func(ctx context.Context) (bool, error) {
		found, err := in.Get(ctx, w.Name, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // the API server may be away
		}
		pod = found
		return scenario.Ready(pod), nil
	})
	if err != nil {
		return nil, fmt.Errorf("pod %s isn't ready: %w: %+v", w.Name, err, pod.Status)
	}
	now.made = time.Now()
	c.mu.Lock()
	c.spans[w.Name], c.live[w.Name] = now, pod
	c.mu.Unlock()
	return pod, c.expectCapture(pod, now)
}

func (c *churn) stopPod(pod *corev1.Pod) error {
	in := c.s.Cluster.Client.CoreV1().Pods(c.s.Namespace)
	err := patiently(func(ctx context.Context) (bool, error) {
		err := in.Delete(ctx, pod.Name, metav1.DeleteOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return fmt.Errorf("pod %s doesn't end: %w", pod.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.live, pod.Name)
	c.stopped++
	return nil
}

// expectCapture checks by real connections, in both directions and families, whether a pod is
// captured as it should be. A pod that escaped is recorded, and must be captured or reported in the
// end.
func (c *churn) expectCapture(pod *corev1.Pod, now span) error {
	seen, first := "", time.Time{}
	err := patiently(func(ctx context.Context) (bool, error) {
		right, said, err := c.captured(ctx, pod, now)
		switch {
		case err != nil: // it is still starting, or disconnected
			return false, nil //nolint:nilerr // the caller asks again
		case right:
			return true, nil
		case !now.mesh:
			return false, fmt.Errorf("it is outside of the mesh, and answers %s", said)
		case seen == "":
			seen, first = said, time.Now()
		}
		return c.reported && c.suspects(ctx, pod.Name), nil
	})
	if err != nil {
		return fmt.Errorf("pod %s isn't captured as it should be, nor reported: %w; at first it answered %q", pod.Name, err, seen)
	}
	if seen != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.escapes = append(c.escapes, escape{pod.Name, now, seen, time.Since(first)})
	}
	return nil
}

// suspects reports whether an event states that a pod may not be captured.
func (c *churn) suspects(ctx context.Context, pod string) bool {
	events, err := c.s.Cluster.Client.CoreV1().Events(c.s.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "source=cni-repair,reason=SuspectPod,involvedObject.name=" + pod,
	})
	return err == nil && len(events.Items) > 0 // the API server may be unreachable
}

// captured makes a pod, at each of its addresses, send a request to its node's server.
func (c *churn) captured(ctx context.Context, pod *corev1.Pod, now span) (right bool, said string, err error) {
	var in, out []string
	if now.mesh {
		in, out = []string{"inbound " + pod.Name}, []string{"outbound " + pod.Name}
	}
	servers := scenario.URLs(c.servers[now.node], 8080)
	right = true
	for i, address := range scenario.URLs(pod, 8080) {
		answer, err := request(ctx, address+"?ask="+url.QueryEscape(servers[i]))
		if err != nil {
			return false, "", err
		}
		right = right && slices.Equal(answer.Via, in) && slices.Equal(answer.Asked.Via, out)
		said += fmt.Sprintf("in via %q, out via %q; ", answer.Via, answer.Asked.Via)
	}
	return right, said, nil
}

// request returns the answer of a pod that was asked to query another one. The request comes from
// the cluster's network, outside all nodes.
func request(ctx context.Context, address string) (answer scenario.Answer, err error) {
	asking, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return answer, err
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(asking)
	if err != nil {
		return answer, err
	}
	defer func() { _ = response.Body.Close() }()
	err = json.NewDecoder(response.Body).Decode(&answer)
	if err == nil && (response.StatusCode != http.StatusOK || answer.Asked == nil) {
		err = fmt.Errorf("%s: %s", address, response.Status)
	}
	return answer, err
}

// patiently waits for a pod, for as long as a pod may take.
func patiently(condition wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(context.Background(), 200*time.Millisecond, mostPod, true, condition)
}
