// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/feed"
	"github.com/meshcni/meshcni/ambient/controller"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// redirection is the status annotation.
const redirection = "ambient.istio.io/redirection"

// named returns what an agent names a pod of namespace shop by.
func named(name, uid string) interception.Pod {
	return interception.Pod{Namespace: "shop", Name: name, UID: uid}
}

// TestAnnotate writes each status, and nothing else of the pod.
func TestAnnotate(t *testing.T) {
	t.Parallel()
	cluster := shop(pod("web", func(p *fakecluster.Pod) { p.Annotations = map[string]string{"note": "1"} }))
	cluster.Answer(func(r *http.Request) int {
		if form := r.Header.Get("Accept"); r.Method == http.MethodPatch && !strings.Contains(form, "as=PartialObjectMetadata;") {
			t.Errorf("the whole pod is the answer: Accept: %s", form)
		}
		return 0
	})
	f := start(t, cluster)
	for _, status := range []ambient.Status{ambient.StatusPending, ambient.StatusEnabled, ambient.NoStatus, ambient.NoStatus} {
		if err := f.Annotate(t.Context(), named("web", "uid-web"), status); err != nil {
			t.Error(err)
		}
		p, _ := f.cluster.Pod("shop", "web")
		if got, is := p.Annotations[redirection]; got != string(status) || is != (status != ambient.NoStatus) || p.Annotations["note"] != "1" {
			t.Errorf("%q: annotations %v", status, p.Annotations)
		}
	}
	a := read(f)
	a.await(t, func() bool { return a.complete })
}

// TestAnnotateAnotherPod leaves one alone that has taken the name.
func TestAnnotateAnotherPod(t *testing.T) {
	t.Parallel()
	f := start(t, shop(pod("web", renewed)))
	for _, name := range []string{"web", "gone"} {
		if err := f.Annotate(t.Context(), named(name, "uid-"+name), ambient.StatusEnabled); !errors.Is(err, feed.ErrPodGone) ||
			!strings.Contains(err.Error(), "annotate pod shop/"+name+` with ambient.istio.io/redirection="enabled"`) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if p, _ := f.cluster.Pod("shop", "web"); p.Annotations[redirection] != "" {
		t.Errorf("annotations %v", p.Annotations)
	}
	if n := len(f.cluster.Writes()); n != 2 {
		t.Errorf("%d requests", n)
	}
	if err := f.Annotate(t.Context(), named("web", ""), ambient.StatusEnabled); err == nil || errors.Is(err, feed.ErrPodGone) {
		t.Errorf("without a UID: got %v", err)
	}
}

// refusing answers the first patches with the statuses, in their order.
func refusing(statuses ...int) func(*http.Request) int {
	var next atomic.Int32
	return func(r *http.Request) int {
		if r.Method != http.MethodPatch {
			return 0
		}
		if i := int(next.Add(1)) - 1; i < len(statuses) {
			return statuses[i]
		}
		return 0
	}
}

// TestAnnotateTriesAgain after refusals that pass.
func TestAnnotateTriesAgain(t *testing.T) {
	t.Parallel()
	for _, status := range []int{
		http.StatusUnauthorized, http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			cluster := shop(pod("web"))
			cluster.Answer(refusing(status, status))
			f := start(t, cluster)
			if err := f.Annotate(t.Context(), named("web", "uid-web"), ambient.StatusEnabled); err != nil {
				t.Error(err)
			}
			if p, _ := cluster.Pod("shop", "web"); p.Annotations[redirection] != "enabled" || len(cluster.Writes()) != 3 {
				t.Errorf("annotations %v after %d requests", p.Annotations, len(cluster.Writes()))
			}
		})
	}
}

// TestAnnotateConflict is about another pod if the informer knows one of that name.
func TestAnnotateConflict(t *testing.T) {
	t.Parallel()
	cluster := shop(pod("web", renewed))
	cluster.Answer(refusing(http.StatusConflict))
	f := start(t, cluster)
	a := read(f)
	a.await(t, func() bool { return a.complete })
	if err := f.Annotate(t.Context(), named("web", "uid-web"), ambient.StatusEnabled); !errors.Is(err, feed.ErrPodGone) {
		t.Errorf("got %v", err)
	}
	if n := len(cluster.Writes()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestAnnotateRefused does not try again what cannot succeed.
func TestAnnotateRefused(t *testing.T) {
	t.Parallel()
	cluster := shop(pod("web"))
	cluster.Answer(refusing(http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusBadRequest))
	f := start(t, cluster)
	err := f.Annotate(t.Context(), named("web", "uid-web"), ambient.StatusEnabled)
	if lacks, is := errors.AsType[*controller.PermissionError](err); !is || lacks.Verbs != "patch" || lacks.Resource != "pods/status" ||
		!strings.Contains(err.Error(), "a role has to allow this program to patch pods/status: ") || !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
	for range 2 {
		err = f.Annotate(t.Context(), named("web", "uid-web"), ambient.StatusEnabled)
		if err == nil || errors.Is(err, feed.ErrPodGone) {
			t.Errorf("got %v", err)
		}
	}
	if n := len(cluster.Writes()); n != 3 {
		t.Errorf("%d requests", n)
	}
}

// TestAnnotateWithoutAnswer waits for one only until the timeout, and tries again until the caller
// has enough. The error has the last answer.
func TestAnnotateWithoutAnswer(t *testing.T) {
	t.Parallel()
	cluster := shop(pod("web"))
	asked := make(chan struct{}, 100)
	var first atomic.Bool
	cluster.Answer(func(r *http.Request) int {
		if r.Method == http.MethodPatch {
			asked <- struct{}{}
			if first.CompareAndSwap(false, true) {
				return http.StatusServiceUnavailable
			}
			io.Copy(io.Discard, r.Body) //nolint:errcheck // a server notices that a client hangs up only after the body
			<-r.Context().Done()
		}
		return 0
	})
	f := start(t, cluster)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	go func() {
		<-asked
		<-asked
		cancel(why)
	}()
	if err := f.Annotate(ctx, named("web", "uid-web"), ambient.StatusEnabled); !errors.Is(err, why) || !apierrors.IsInternalError(err) {
		t.Errorf("got %v", err)
	}
}

// TestAnnotateTimesOut and tries again.
func TestAnnotateTimesOut(t *testing.T) {
	t.Parallel()
	cluster := shop(pod("web"))
	var first atomic.Bool
	cluster.Answer(func(r *http.Request) int {
		if r.Method == http.MethodPatch && first.CompareAndSwap(false, true) {
			io.Copy(io.Discard, r.Body) //nolint:errcheck // a server notices that a client hangs up only after the body
			<-r.Context().Done()
		}
		return 0
	})
	f := start(t, cluster, func(o *controller.Options) { o.Timeout = 500 * time.Millisecond })
	if err := f.Annotate(t.Context(), named("web", "uid-web"), ambient.StatusEnabled); err != nil {
		t.Error(err)
	}
}
