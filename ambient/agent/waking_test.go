// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
)

// TestOwnStatusIsNoNews has the feed tell of a pod whose worker waits. The worker looks at the pod
// again after every change but one: that the pod has the status that the agent has written.
func TestOwnStatusIsNoNews(t *testing.T) {
	t.Parallel()
	const key = "ambient.istio.io/redirection"
	shop := []ambient.Namespace{{Name: "shop"}}
	told := func(status, label string) []ambient.Pod {
		pod := ambient.Pod{Pod: interception.Pod{Namespace: "shop", Name: "web", UID: "a", Labels: map[string]string{"app": label}}}
		if status != "" {
			pod.Annotations = map[string]string{key: status}
		}
		return []ambient.Pod{pod}
	}
	for name, test := range map[string]struct {
		change ambient.Change
		looks  bool
	}{
		"its own status":                 {ambient.Change{Pods: told("enabled", "web")}, false},
		"its own status, namespace told": {ambient.Change{Namespaces: shop, Pods: told("enabled", "web")}, false},
		"another status":                 {ambient.Change{Pods: told("pending", "web")}, true},
		"and another label":              {ambient.Change{Pods: told("enabled", "api")}, true},
		"and another namespace": {
			ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop", Labels: map[string]string{"a": "b"}}}, Pods: told("enabled", "web")}, true,
		},
		"and the feed is complete": {ambient.Change{Pods: told("enabled", "web"), Complete: true}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &Agent{
				options: Options{Vocabulary: ambient.Istio(), Annotator: ignore{}}, roster: roster.New(),
				told: make(chan struct{}), workers: map[string]*worker{},
			}
			a.sets.options, a.sets.changed = &a.options, make(chan struct{}, 1)
			w := newWorker(a, "a")
			a.learn(ambient.Change{Namespaces: shop, Pods: told("", "web")})
			w.learn()
			w.annotate(ambient.StatusEnabled)
			w.seen.Status = ambient.StatusEnabled
			a.workers["a"] = w
			looks := false
			go func() {
				w.wait(t.Context(), w.begin(), time.Hour)
				looks = true
			}()
			synctest.Wait()
			a.learn(test.change)
			synctest.Wait()
			if looks != test.looks {
				t.Errorf("%s: the worker looks again: %t, want %t", name, looks, test.looks)
			}
			w.nudge()
		})
	}
}

// wrote tells when an annotation is written.
type wrote chan time.Time

func (w wrote) Annotate(interception.Pod, ambient.Status) { w <- time.Now() }

// TestStatusOfNewPod has a worker want a status. While the plugin waits for the pod, "enabled" is
// written 25 ms later, and "pending" only if the pod is captured in any case. It never takes the
// place of "enabled".
func TestStatusOfNewPod(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	for name, test := range map[string]struct {
		waits, closed bool
		told, status  ambient.Status
		after         time.Duration
	}{
		"enabled":                                 {status: ambient.StatusEnabled},
		"pending":                                 {status: ambient.StatusPending, after: 3 * time.Second},
		"enabled, and the plugin waits":           {waits: true, status: ambient.StatusEnabled, after: 25 * time.Millisecond},
		"pending, and the plugin waits":           {waits: true, status: ambient.StatusPending, after: never},
		"no status, and the plugin waits":         {waits: true, told: ambient.StatusEnabled, status: ambient.NoStatus},
		"no longer enabled":                       {told: ambient.StatusEnabled, status: ambient.StatusPending, after: never},
		"pending, captured before a proxy serves": {waits: true, closed: true, status: ambient.StatusPending, after: 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			written := make(wrote, 2)
			w := newWorker(&Agent{options: Options{Vocabulary: ambient.Istio(), Annotator: written}}, "a")
			w.know(ambient.Pod{Pod: interception.Pod{Annotations: map[string]string{ambient.Istio().Status: string(test.told)}}})
			w.state.Wanted.Closed = test.closed
			if test.waits {
				w.waiting = []*event{{}}
			}
			begin := time.Now()
			w.annotate(test.status)
			<-time.After(time.Minute)
			after := never
			if len(written) > 0 {
				after = (<-written).Sub(begin)
			}
			if after != test.after || len(written) > 0 {
				t.Errorf("%s: written after %s, want %s, and %d times more", name, after, test.after, len(written))
			}
		})
	}
}

// TestNoticesHaveAPace has something change in a pod's namespace whenever its worker waits, as a
// step does that the kernel refuses and that is undone, and time and again another program. The
// first looks follow at once, and then there are two a second.
func TestNoticesHaveAPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(&Agent{}, "a")
		begin := time.Now()
		for looks := range 100 {
			w.notice()
			w.wait(t.Context(), w.begin(), time.Hour)
			took := time.Since(begin)
			if most := 10 + int(took/(time.Second/2)); looks+1 > most || looks < 9 && took > 0 {
				t.Fatalf("%d looks within %s", looks+1, took)
			}
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("100 looks took %s", took)
		}
		w.notice()
		begin = time.Now()
		w.wait(t.Context(), w.begin(), time.Millisecond)
		if took := time.Since(begin); took != time.Millisecond {
			t.Errorf("a pause of a millisecond took %s", took)
		}
		alert := w.begin()
		w.notice()
		w.nudge()
		begin = time.Now()
		if w.wait(t.Context(), alert, time.Hour); time.Since(begin) > 0 {
			t.Error("news waits for the pace of notices")
		}
	})
}

// TestNoticeKeepsWorker has something change in the namespace of a pod whose worker has nothing
// left to do: it stays, and looks again.
func TestNoticeKeepsWorker(t *testing.T) {
	t.Parallel()
	a := &Agent{retired: make(chan struct{}), workers: map[string]*worker{}}
	a.sets.options = &a.options
	w := newWorker(a, "a")
	a.workers["a"] = w
	w.notice()
	if a.retire(w) {
		t.Fatal("the worker retires")
	}
	w.wait(t.Context(), w.begin(), time.Hour)
	if !a.retire(w) {
		t.Error("the worker stays for a change that it has looked at")
	}
}

// TestStatusKeepsWorker has the feed tell another status of a pod whose worker has nothing left to
// do: it stays, and looks again.
func TestStatusKeepsWorker(t *testing.T) {
	t.Parallel()
	a := &Agent{retired: make(chan struct{}), workers: map[string]*worker{}}
	a.sets.options = &a.options
	w := newWorker(a, "a")
	a.workers["a"] = w
	alert := w.begin()
	w.tellStatus()
	if a.retire(w) {
		t.Error("the worker retires")
	}
	select {
	case <-alert:
	default:
		t.Error("the worker does not look again")
	}
}

// TestProxyEvents has the server for the proxy tell what happens: the worker of a pod looks again
// when a proxy has come or gone, and not because one has been told of all pods.
func TestProxyEvents(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		event zds.Event
		looks bool
	}{
		"a proxy has come":                  {zds.Event{Connection: 1, Hello: &zds.Hello{}}, true},
		"a proxy has gone":                  {zds.Event{Connection: 1, Err: io.EOF}, true},
		"a proxy has gone before its hello": {zds.Event{Err: io.EOF}, false},
		"a proxy has been told of all pods": {zds.Event{Connection: 1, Request: zds.Request{Kind: zds.KindSnapshotSent}}, false},
		"a proxy has been told of another":  {zds.Event{Connection: 1, Request: zds.Request{Kind: zds.KindAdd, Workload: zds.Workload{UID: "b"}}}, false},
		"a proxy has been told of the pod":  {zds.Event{Connection: 1, Request: zds.Request{Kind: zds.KindAdd, Workload: zds.Workload{UID: "a"}}}, true},
	} {
		a := &Agent{workers: map[string]*worker{}}
		w := newWorker(a, "a")
		a.workers["a"] = w
		alert := w.begin()
		w.rest(true)
		a.hear(test.event)
		looks := false
		select {
		case <-alert:
			looks = true
		default:
		}
		if looks != test.looks {
			t.Errorf("%s: the worker looks again: %t, want %t", name, looks, test.looks)
		}
	}
}

// ignore is an annotator of a pod whose status the test tells.
type ignore struct{}

func (ignore) Annotate(interception.Pod, ambient.Status) {}
