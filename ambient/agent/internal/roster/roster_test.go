// SPDX-License-Identifier: Apache-2.0

package roster_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

var errOver = errors.New("over")

func pod(uid, name string, addresses ...string) ambient.Pod {
	p := ambient.Pod{Pod: interception.Pod{Namespace: "shop", Name: name, UID: uid, Annotations: map[string]string{}}}
	for _, a := range addresses {
		p.Addresses = append(p.Addresses, netip.MustParseAddr(a))
	}
	return p
}

func none(ambient.Pod) {}

// TestUID finds pods by the UIDs that the plugin may know them by.
func TestUID(t *testing.T) {
	t.Parallel()
	r := roster.New()
	static := pod("mirror", "static", "10.0.0.2")
	static.Annotations[roster.MirrorAnnotation] = "of-the-file"
	r.Update(ambient.Change{Pods: []ambient.Pod{pod("a", "web-0", "10.0.0.1"), static}}, none)
	for name, test := range map[string]struct {
		pod  podnetns.Pod
		want string
	}{
		"by its own":           {podnetns.Pod{Namespace: "shop", Name: "web-0", UID: "a"}, "a"},
		"static":               {podnetns.Pod{Namespace: "shop", Name: "static", UID: "of-the-file"}, "mirror"},
		"by its name":          {podnetns.Pod{Namespace: "shop", Name: "web-0", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, "a"},
		"of other addresses":   {podnetns.Pod{Namespace: "shop", Name: "web-0", IPs: []netip.Addr{netip.MustParseAddr("10.0.0.9")}}, ""},
		"of another UID":       {podnetns.Pod{Namespace: "shop", Name: "web-0", UID: "b"}, ""},
		"of another namespace": {podnetns.Pod{Namespace: "bank", Name: "web-0"}, ""},
	} {
		if got := r.UID(test.pod); got != test.want {
			t.Errorf("%s: the UID is %q, want %q", name, got, test.want)
		}
	}
}

// TestUpdate counts what is new, and passes over what is told again.
func TestUpdate(t *testing.T) {
	t.Parallel()
	r := roster.New()
	changed := pod("a", "web-0", "10.0.0.1")
	for i, step := range []struct {
		change    ambient.Change
		concerned int
		times     map[string]int
	}{
		{ambient.Change{Pods: []ambient.Pod{pod("a", "web-0"), pod("b", "web-1")}}, 2, map[string]int{"add": 2}},
		{ambient.Change{Pods: []ambient.Pod{pod("a", "web-0")}}, 0, nil},
		{ambient.Change{Pods: []ambient.Pod{changed}}, 1, map[string]int{"update": 1}},
		{ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop"}}}, 2, nil},
		{ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop"}}}, 0, nil},
		{ambient.Change{Gone: []string{"a", "unknown"}}, 2, map[string]int{"delete": 1}},
	} {
		concerned, times := r.Update(step.change, none)
		if len(concerned) != step.concerned || len(times) != len(step.times) {
			t.Errorf("step %d: %v are concerned, %v times, want %d, %v", i, concerned, times, step.concerned, step.times)
		}
		for of, n := range step.times {
			if times[of] != n {
				t.Errorf("step %d: %d times %s, want %d", i, times[of], of, n)
			}
		}
	}
}

// TestAwait returns the decision with the news that allow one, and otherwise why there is none.
func TestAwait(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	r := roster.New()
	asked := make(chan struct{}, 1)
	decide := func(uid string) (interception.Decision, bool) {
		select {
		case asked <- struct{}{}:
		default:
		}
		return r.Decide(uid, ambient.IstioPolicy())
	}
	go func() {
		<-asked
		mu.Lock()
		defer mu.Unlock()
		r.Update(ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop"}}, Pods: []ambient.Pod{pod("a", "web-0")}}, none)
		r.News()
	}()
	of := podnetns.Pod{Namespace: "shop", Name: "web-0"}
	if decision, err := r.AwaitDecision(t.Context(), &mu, nil, &of, decide); err != nil || decision.Capture || of.UID != "a" {
		t.Errorf("decided %s about %s, %v", decision, of, err)
	}
	stopped := make(chan struct{})
	close(stopped)
	over, end := context.WithCancelCause(t.Context())
	end(errOver)
	stranger := podnetns.Pod{Namespace: "shop", Name: "web-9"}
	if _, err := r.AwaitDecision(t.Context(), &mu, stopped, &stranger, decide); !errors.Is(err, roster.ErrStopped) {
		t.Errorf("after the agent's end: %v", err)
	}
	if _, err := r.AwaitDecision(over, &mu, nil, &stranger, decide); !errors.Is(err, roster.ErrUnknownPod) || !errors.Is(err, errOver) {
		t.Errorf("after the end of the context: %v", err)
	}
}
