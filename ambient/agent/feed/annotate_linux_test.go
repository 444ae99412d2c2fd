// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// requests are the calls of an annotator, which answers with what the test sends.
type requests struct {
	calls   chan interception.Pod
	status  chan ambient.Status
	answers chan error
}

func (c *cluster) requests() *requests {
	r := &requests{make(chan interception.Pod), make(chan ambient.Status), make(chan error)}
	c.annotate = func(ctx context.Context, pod interception.Pod, status ambient.Status) error {
		select {
		case r.calls <- pod:
		case <-ctx.Done():
			return ctx.Err()
		}
		r.status <- status
		select {
		case err := <-r.answers:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return r
}

func (r *requests) expect(t *testing.T, uid string, status ambient.Status) {
	t.Helper()
	want := named(uid, "shop", "").Pod
	if diff := cmp.Diff(want, <-r.calls); diff != "" {
		t.Error(diff)
	}
	if got := <-r.status; got != status {
		t.Errorf("status %q of pod %s, want %q", got, uid, status)
	}
}

var errBusy = errors.New("the API server is busy")

func TestAnnotate(t *testing.T) {
	t.Parallel()
	path, c := socketPath(t), newCluster()
	r := c.requests()
	_, observed := c.serve(t, path, ServerOptions{})
	a := begin(t, path)
	one := ambient.Pod{Pod: named("1", "shop", "").Pod}
	one.Labels = map[string]string{"not": "sent"}
	a.Annotate(one.Pod, ambient.StatusPending)
	r.expect(t, "1", ambient.StatusPending)
	a.Annotate(one.Pod, ambient.NoStatus)
	a.Annotate(one.Pod, ambient.StatusEnabled) // which takes the place of none
	r.answers <- nil
	r.expect(t, "1", ambient.StatusEnabled)
	r.answers <- errBusy
	r.expect(t, "1", ambient.StatusEnabled)
	for _, side := range []*events{a.observed, observed} {
		e := side.await(t, "that it is not annotated", func(e Event) bool { return e.Kind == NotAnnotated })
		if e.UID != "1" || e.Connection == 0 || e.Err == nil {
			t.Errorf("got %+v", e)
		}
	}
	r.answers <- fmt.Errorf("patch it: %w", ErrPodGone)
	a.Annotate(named("2", "shop", "").Pod, ambient.NoStatus) // and nothing more about the first one
	r.expect(t, "2", ambient.NoStatus)
	r.answers <- nil
}

// TestAnnotateAgain ends the source while it annotates. The next source is asked, and only for what
// was not confirmed.
func TestAnnotateAgain(t *testing.T) {
	t.Parallel()
	path, first, second := socketPath(t), newCluster(), newCluster()
	r, next := first.requests(), second.requests()
	stop, _ := first.serve(t, path, ServerOptions{})
	a := begin(t, path)
	a.Annotate(named("1", "shop", "").Pod, ambient.StatusEnabled)
	r.expect(t, "1", ambient.StatusEnabled)
	r.answers <- nil
	a.Annotate(named("2", "shop", "").Pod, ambient.StatusPending)
	r.expect(t, "2", ambient.StatusPending)
	_ = stop() // TestSourceRestarts looks at the error
	a.Annotate(named("2", "shop", "").Pod, ambient.StatusEnabled)
	second.serve(t, path, ServerOptions{})
	next.expect(t, "2", ambient.StatusEnabled)
	next.answers <- nil
	a.Annotate(named("3", "shop", "").Pod, ambient.StatusEnabled)
	next.expect(t, "3", ambient.StatusEnabled)
	next.answers <- nil
}

// TestAnnotateGone has a pod that is gone before the source could be asked.
func TestAnnotateGone(t *testing.T) {
	t.Parallel()
	path, c := socketPath(t), newCluster()
	r := c.requests()
	a := begin(t, path)
	a.Annotate(named("1", "shop", "").Pod, ambient.StatusEnabled)
	listener := listen(t, path)
	s := accept(t, listener)
	s.send(`{"complete":{}}`)
	a.await("a complete feed", func() bool { return a.complete })
	_ = s.Close()
	_ = listener.Close()
	c.serve(t, path, ServerOptions{})
	a.Annotate(named("2", "shop", "").Pod, ambient.StatusEnabled)
	r.expect(t, "2", ambient.StatusEnabled)
	r.answers <- nil
}

// TestAnnotateMany has many pods at once: never more than the bound, and never two requests for one
// pod, although two agents ask.
func TestAnnotateMany(t *testing.T) {
	t.Parallel()
	const pods = 100
	path, c := socketPath(t), newCluster()
	var now, most atomic.Int32
	var mu sync.Mutex
	var all sync.WaitGroup
	all.Add(2 * pods)
	busy := map[string]bool{}
	c.annotate = func(ctx context.Context, pod interception.Pod, _ ambient.Status) error {
		if _, limited := ctx.Deadline(); !limited {
			t.Error("a request has no time limit")
		}
		n := now.Add(1)
		mu.Lock()
		most.Store(max(n, most.Load()))
		if busy[pod.UID] {
			t.Errorf("two requests for pod %s at once", pod.UID)
		}
		busy[pod.UID] = true
		mu.Unlock()
		defer all.Done()
		mu.Lock()
		defer mu.Unlock()
		now.Add(-1)
		delete(busy, pod.UID)
		return nil
	}
	c.serve(t, path, ServerOptions{})
	for range 2 {
		a := begin(t, path)
		for i := range pods {
			a.Annotate(named(fmt.Sprint(i), "shop", "").Pod, ambient.StatusEnabled)
		}
	}
	all.Wait()
	if got := most.Load(); got > 2*maxAnnotations {
		t.Errorf("%d requests at once", got)
	}
}

// TestAnnotateEndsWithItsAgent has an agent that goes while the source annotates for it. Another
// one waits for its turn until then.
func TestAnnotateEndsWithItsAgent(t *testing.T) {
	t.Parallel()
	path, c := socketPath(t), newCluster()
	r := c.requests()
	c.serve(t, path, ServerOptions{})
	old, anew := begin(t, path), begin(t, path)
	old.Annotate(named("1", "shop", "").Pod, ambient.StatusPending)
	r.expect(t, "1", ambient.StatusPending)
	anew.Annotate(named("1", "shop", "").Pod, ambient.StatusEnabled)
	old.stop()
	r.expect(t, "1", ambient.StatusEnabled)
	r.answers <- nil
}

// TestAnnotatorsAreBounded asks for more than the source does at once. It reads no more, and goes
// on telling.
func TestAnnotatorsAreBounded(t *testing.T) {
	t.Parallel()
	path, c := socketPath(t), newCluster()
	r := c.requests()
	c.serve(t, path, ServerOptions{})
	a := begin(t, path)
	for i := range 3 * maxAnnotations {
		a.Annotate(named(fmt.Sprint(i), "shop", "").Pod, ambient.StatusEnabled)
	}
	for range maxAnnotations {
		<-r.calls
		<-r.status
	}
	c.changes <- told(true, "x")
	a.awaitPods("x")
	select {
	case pod := <-r.calls:
		t.Errorf("one request more: %+v", pod)
	default:
	}
	r.answers <- nil
	<-r.calls
	<-r.status
}
