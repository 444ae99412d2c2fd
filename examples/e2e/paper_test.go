// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/internal/istiomesh"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// paper is a node without a machine, whose pods exist only in the API server. Only the test and its
// repair controllers change them.
type paper struct {
	*scenario.Scenario
	t    *testing.T
	node string
	// account owns pods. It exists, because pods without an existing owner are garbage-collected.
	account metav1.OwnerReference
}

// onPaper begins a scenario with a node without a machine. The DaemonSet does not run on it,
// because the node has no label of an operating system.
func onPaper(t *testing.T) *paper {
	t.Helper()
	s := suite.Begin(t)
	p := &paper{Scenario: s, t: t, node: s.Namespace}
	p.account, _, _ = owner(t, s)
	p.Do("make the node", func(ctx context.Context) error {
		_, err := p.Cluster.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.node}}, metav1.CreateOptions{})
		return err
	})
	p.Cleanup("delete the node", func(ctx context.Context) error {
		return p.Cluster.Client.CoreV1().Nodes().Delete(ctx, p.node, metav1.DeleteOptions{})
	})
	return p
}

// pod creates a pod of the node whose validator has ended with a code.
func (p *paper) pod(ctx context.Context, name string, code int32, owners ...metav1.OwnerReference) error {
	w := scenario.Workload{Name: name, Injected: true, Node: p.node, Change: func(template *corev1.PodTemplateSpec) {
		validator := template.Spec.Containers[0]
		validator.Name, validator.ReadinessProbe = "istio-validation", nil
		template.Spec.InitContainers = []corev1.Container{validator}
		template.Spec.TerminationGracePeriodSeconds = new(int64) // no kubelet would confirm the end
		template.OwnerReferences = owners
	}}
	made, err := p.Cluster.Client.CoreV1().Pods(p.Namespace).Create(ctx, w.Pod(), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "istio-validation", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.Now()}},
	}}
	_, err = p.Cluster.Client.CoreV1().Pods(made.Namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

// broken creates pods whose validators report that they are not captured.
func (p *paper) broken(names ...string) {
	p.t.Helper()
	for _, name := range names {
		p.Do("make pod "+name, func(ctx context.Context) error { return p.pod(ctx, name, 126, p.account) })
	}
}

// left returns repair's labels on the existing pods, by the pods' names.
func (p *paper) left() map[string]string {
	p.t.Helper()
	left := map[string]string{}
	p.Do("list pods", func(ctx context.Context) error {
		pods, err := p.Cluster.Client.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{})
		for _, pod := range pods.Items {
			left[pod.Name] = pod.Labels[repair.IstioLabel().Key]
		}
		return err
	})
	return left
}

// eventsOf returns the messages of a pod's events, by reason.
func (p *paper) eventsOf(pod string) map[string][]string {
	p.t.Helper()
	told := map[string][]string{}
	p.Do("list events", func(ctx context.Context) error {
		events, err := p.Cluster.Client.CoreV1().Events(p.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "source=cni-repair,involvedObject.name=" + pod})
		for _, e := range events.Items {
			told[e.Reason] = append(told[e.Reason], e.Message)
		}
		return err
	})
	return told
}

// wire is a connection to the API server that injects faults and records writes.
type wire struct {
	inner http.RoundTripper
	// ahead and back are the delays of a request and of its answer.
	ahead, back time.Duration
	// lost makes the client miss the answers to its writes.
	lost bool
	// before is called with each request; nil for nothing.
	before func(*http.Request)

	mu       sync.Mutex
	writes   []write
	underway int
}

// write is a request that changes something, with its status; 0 without an answer.
type write struct {
	method, last string // the method, and the last element of the path
	status       int
}

func (w write) String() string { return fmt.Sprintf("%s %s %d", w.method, w.last, w.status) }

// RoundTrip sends a request and injects the wire's faults.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.count(1)
	defer w.count(-1)
	if w.before != nil {
		w.before(r)
	}
	if err := pass(r.Context(), w.ahead); err != nil {
		return nil, err
	}
	if w.lost && r.Method != http.MethodGet {
		answer, err := w.send(r.Clone(context.WithoutCancel(r.Context())))
		<-r.Context().Done()
		if err == nil {
			_ = answer.Body.Close()
		}
		return nil, r.Context().Err()
	}
	answer, err := w.send(r)
	if err != nil {
		return nil, err
	}
	if err := pass(r.Context(), w.back); err != nil {
		_ = answer.Body.Close()
		return nil, err
	}
	return answer, nil
}

// send sends a request, and records its result.
func (w *wire) send(r *http.Request) (*http.Response, error) {
	answer, err := w.inner.RoundTrip(r)
	status := 0
	if err == nil {
		status = answer.StatusCode
	}
	if r.Method != http.MethodGet {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.writes = append(w.writes, write{r.Method, path.Base(r.URL.Path), status})
	}
	return answer, err
}

func (w *wire) count(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.underway += n
}

// pass waits for a time or the end of the context.
func pass(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// sent returns the writes with a method, except events.
func (w *wire) sent(method string) []write {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.writes), func(x write) bool { return x.method != method || x.last == "events" })
}

// keeper is a repair controller beside a real API server.
type keeper struct {
	*controller.Controller
	known cache.Store  // its pods
	end   func()       // stops it, and waits until it has ended
	looks atomic.Int64 // number of times that it checked a pod

	mu       sync.Mutex
	outcomes []controller.Outcome
}

// keep runs a repair controller for the node on a wire, with the options' policy and limits, as the
// named user if there is a name.
func (p *paper) keep(w *wire, o controller.Options, user string) *keeper {
	p.t.Helper()
	config := p.Cluster.Config()
	config.QPS, config.Impersonate.UserName = -1, user
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		w.inner = inner
		return w
	})
	client, err := controller.NewClient(config)
	if err != nil {
		p.t.Fatal(err)
	}
	informer, err := client.Informer(p.node, controller.Selection{})
	if err != nil {
		p.t.Fatal(err)
	}
	o.Cluster, o.Informer, o.Resync = client, informer, time.Hour
	o.Criteria = repair.Criteria{
		Mesh: istiomesh.Mesh(), Node: p.node, Validators: []repair.Validator{repair.IstioValidator()},
	}
	k := &keeper{known: informer.GetStore()}
	o.OnOutcome = func(outcome controller.Outcome) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.outcomes = append(k.outcomes, outcome)
	}
	o.OnStatus = func() { k.looks.Add(1) }
	if k.Controller, err = controller.New(o); err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { informer.RunWithContext(ctx) })
	group.Go(func() {
		if err := k.Run(ctx); err != nil {
			p.t.Error(err)
		}
	})
	k.end = sync.OnceFunc(func() {
		cancel()
		group.Wait()
		if w.underway != 0 {
			p.t.Errorf("%d requests are on their way when the controller has ended", w.underway)
		}
	})
	p.t.Cleanup(k.end)
	return k
}
