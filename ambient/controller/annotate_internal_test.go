// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// TestImmutable knows the refusal of a UID from others.
func TestImmutable(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]bool{"metadata.uid": true, "metadata.annotations": false} {
		err := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", field.ErrorList{field.Invalid(field.NewPath(at), "x", "no")})
		if isImmutable(err, "metadata.uid") != want {
			t.Errorf("%s: got %t", at, !want)
		}
	}
}

// TestPauses are as long as the API server asks for, and no shorter than planned.
func TestPauses(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int]time.Duration{0: 2 * time.Second, 1: 2 * time.Second, 7: 7 * time.Second} {
		if got := atLeast(2*time.Second, apierrors.NewTooManyRequests("slower", seconds)); got != want {
			t.Errorf("asked for %d s: got %v", seconds, got)
		}
	}
	pause, total := pauses(), time.Duration(0)
	for range 20 {
		step := pause.Step()
		if total += step; step < 200*time.Millisecond || step > 45*time.Second {
			t.Errorf("a pause of %v", step)
		}
	}
	if total < time.Minute {
		t.Errorf("20 pauses take %v: they do not grow", total)
	}
}

// TestPauseEndsWithAnAnswer ends pauses of an hour: the API server was away, and namespaces can be
// watched again. Only a pause that the API server has asked for goes on.
func TestPauseEndsWithAnAnswer(t *testing.T) {
	t.Parallel()
	cluster := fakecluster.New()
	cluster.PutNamespace("shop", nil)
	server := httptest.NewServer(cluster.Handler())
	config := &rest.Config{Host: server.URL}
	pods, err := NewInformer(config, "a")
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan struct{}, 100)
	c, err := New(Options{Config: config, Pods: pods, Annotation: "status", OnError: func(error) { failed <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.namespaces.RunWithContext(ctx) }()
	t.Cleanup(func() { end(); <-done; cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	<-c.namespaces.HasSyncedChecker().Done()
	cluster.Refuse(http.StatusServiceUnavailable)
	<-failed
	answers := c.nextAnswer()
	cluster.Refuse(0)
	if err := sleep(t.Context(), time.Hour, answers, errors.New("away")); err != nil {
		t.Error(err)
	}
	asked, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := sleep(asked, time.Hour, answers, apierrors.NewTooManyRequests("slower", 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the API server has asked for a pause: %v", err)
	}
}
