// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// most limits how long anything in a scenario may take.
const most = 2 * time.Minute

// Scenario is one test. Its methods fail the test at once on an error.
type Scenario struct {
	*Suite
	// Namespace is the scenario's own namespace.
	Namespace string

	t       *testing.T
	names   atomic.Int64 // for pods that need a new one
	written bool         // the cluster's state is written down
}

// Begin begins a scenario, in a namespace of its own, with the product installed by the chart's own
// values.
func (s *Suite) Begin(t *testing.T) *Scenario {
	t.Helper()
	return s.BeginWith(t, nil)
}

// BeginAsItIs is [Suite.Begin] without any change to the installation.
func (s *Suite) BeginAsItIs(t *testing.T) *Scenario {
	t.Helper()
	words := regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`).FindAllString(strings.TrimPrefix(t.Name(), "Test"), -1)
	b := &Scenario{Suite: s, Namespace: strings.ToLower(strings.Join(words, "-")), t: t}
	b.Do("make the namespace", func(ctx context.Context) error {
		_, err := b.client().CoreV1().Namespaces().Create(
			ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.Namespace}}, metav1.CreateOptions{},
		)
		return err
	})
	t.Cleanup(b.end)
	b.Await("the namespace's service account", func(ctx context.Context) (bool, error) {
		_, err := b.client().CoreV1().ServiceAccounts(b.Namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	return b
}

// end writes down the cluster's state if the scenario has failed, and removes the namespace.
func (s *Scenario) end() {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	if s.t.Failed() {
		s.writeDown(ctx)
	}
	err := s.client().CoreV1().Namespaces().Delete(ctx, s.Namespace, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Error(err)
	}
}

// writeDown writes down the cluster's state once: a wait that fails does so before the cleanup
// changes what it was about.
func (s *Scenario) writeDown(ctx context.Context) {
	if s.written {
		return
	}
	s.written = true
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	name := filepath.Join(s.Cluster.Logs(), s.Namespace+".yaml")
	if err := os.WriteFile(name, s.objects(ctx), 0o644); err != nil {
		s.t.Log(err)
	}
	s.t.Logf("the cluster's objects and events: %s", name)
}

func (s *Scenario) objects(ctx context.Context) []byte {
	var text []byte
	add := func(list runtime.Object, err error) {
		if err != nil {
			text = fmt.Appendf(text, "# %v\n", err)
			return
		}
		document, err := yaml.Marshal(list)
		if err != nil {
			text = fmt.Appendf(text, "# %v\n", err)
		}
		text = append(append(text, "---\n"...), document...)
	}
	events, err := s.client().CoreV1().Events("").List(ctx, metav1.ListOptions{})
	add(events, err)
	pods, err := s.client().CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	add(pods, err)
	nodes, err := s.client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	add(nodes, err)
	return text
}

// client returns a client with all rights.
func (s *Suite) client() *kubernetes.Clientset { return s.Cluster.Client }

// Await waits up to two minutes for a state. An error of the condition ends the wait.
func (s *Scenario) Await(what string, condition func(context.Context) (bool, error)) {
	s.t.Helper()
	s.AwaitFor(most, what, condition)
}

// AwaitFor is [Scenario.Await] with another limit.
func (s *Scenario) AwaitFor(limit time.Duration, what string, condition func(context.Context) (bool, error)) {
	s.t.Helper()
	defer s.timed(what, time.Now())
	err := wait.PollUntilContextTimeout(s.t.Context(), 50*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		if err := s.Cluster.Running(); err != nil {
			return false, err
		}
		return condition(ctx)
	})
	if err != nil {
		s.writeDown(s.t.Context())
		s.t.Fatalf("wait for %s: %v", what, err)
	}
}

// Long skips the scenario in short runs.
func (s *Suite) Long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out of short runs")
	}
}

// Cleanup runs a function at the end of the scenario, even of a failed one. The function must
// succeed.
func (s *Scenario) Cleanup(what string, work func(context.Context) error) {
	s.t.Cleanup(func() {
		defer s.timed(what, time.Now())
		ctx, cancel := context.WithTimeout(context.Background(), 2*most)
		defer cancel()
		if err := work(ctx); err != nil {
			s.t.Errorf("%s: %v", what, err)
		}
	})
}

// Do runs a function that must succeed within two minutes.
func (s *Scenario) Do(what string, work func(context.Context) error) {
	s.t.Helper()
	defer s.timed(what, time.Now())
	ctx, cancel := context.WithTimeout(s.t.Context(), most)
	defer cancel()
	if err := work(ctx); err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

// timed logs a step that took long.
func (s *Scenario) timed(what string, start time.Time) {
	if took := time.Since(start); took > time.Second {
		s.t.Logf("%4.1f s  %s", took.Seconds(), what)
	}
}
