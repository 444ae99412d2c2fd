// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

var errInjected = errors.New("injected")

// failing is a dataplane whose call number failAt fails, before its work or after it.
type failing struct {
	ambient.Applier

	failAt, calls int
	done          bool
}

func (f *failing) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	return f.call(func() error { return f.Applier.Apply(ctx, ns, p) })
}

func (f *failing) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return f.call(func() error { return f.Applier.Remove(ctx, ns, owner) })
}

func (f *failing) call(do func() error) error {
	if f.calls++; f.calls != f.failAt {
		return do()
	}
	if f.done {
		return errors.Join(errInjected, do())
	}
	return errInjected
}

// TestRolloutIsUndone has the first proxy of a node, its successor, and a node without a proxy,
// with a failure at each step, before its work and after it.
func TestRolloutIsUndone(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		for way, proxy := range ways() {
			t.Run(name+" "+way.String(), func(t *testing.T) {
				t.Parallel()
				undone(t, backend, proxy)
			})
		}
	}
}

func undone(t *testing.T, backend hostBackend, proxy ambient.NodeProxy) {
	t.Helper()
	node, former, successor := sandboxtest.NewPod(t), sandboxtest.NewPod(t), sandboxtest.NewPod(t)
	all := func() [3]string { return [3]string{contents(t, node), contents(t, former), contents(t, successor)} }
	empty := all()
	s := ambient.ProxySwitch{
		Owner: "test-ambient", Numbers: ambient.IstioNodeNumbers(), Node: node.Netns, Facts: bothFamilies(), Fresh: true,
		Successor: ambient.ProxyPod{Proxy: proxy, Namespace: former.Netns, Facts: bothFamilies()},
	}
	failEverywhere(t, backend, s, all)
	enter(t, backend, node.Netns, s.Owner, proxy.Addresses[0]) // a member, which the next switches keep
	s.Fresh, s.Former = false, s.Successor
	s.Successor.Namespace = successor.Netns
	s.Successor.Proxy.Namespace, s.Successor.Proxy.Generation = "successor", proxy.Generation+1
	failEverywhere(t, backend, s, all)
	s.Former, s.Successor = s.Successor, ambient.ProxyPod{}
	failEverywhere(t, backend, s, all)
	state, err := backend.Observe(t.Context(), node.Netns, s.Owner)
	if err != nil || len(state.Owners) != 1 {
		t.Errorf("members after all switches: %v, %v, want one", state.Owners, err)
	}
	last, err := s.Rollout()
	if err != nil {
		t.Fatal(err)
	}
	if err := last.Remove(t.Context(), backend); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(empty, all()); diff != "" {
		t.Errorf("after Remove (-before +after):\n%s", diff)
	}
}

// failEverywhere has a switch fail at each step, and then succeed.
func failEverywhere(t *testing.T, backend interception.Dataplane, s ambient.ProxySwitch, all func() [3]string) {
	t.Helper()
	r, err := s.Rollout()
	if err != nil {
		t.Fatal(err)
	}
	before := all()
	for step := range r.Steps {
		for _, done := range []bool{false, true} {
			err := r.Apply(t.Context(), &failing{Applier: backend, failAt: step + 1, done: done})
			var failed *ambient.RolloutError
			if !errors.As(err, &failed) || !errors.Is(err, errInjected) || failed.Step != step || len(failed.Back) > 0 {
				t.Errorf("failing at %d: %v", step, err)
			}
			if diff := cmp.Diff(before, all()); diff != "" {
				t.Errorf("failing at %d, after its work: %v (-before +after):\n%s", step, done, diff)
			}
		}
	}
	if err := r.Apply(t.Context(), backend); err != nil {
		t.Fatal(err)
	}
	for i, step := range r.Steps {
		if later := afterwards(r, i); later || step.Plan == nil {
			continue
		}
		state, err := backend.Observe(t.Context(), step.Namespace, s.Owner)
		if err != nil {
			t.Fatal(err)
		}
		if drifts := interception.Diff(step.Plan, state); drifts != nil {
			t.Errorf("step %d: %v", i, drifts)
		}
	}
}

// afterwards reports whether a later step is about the same namespace.
func afterwards(r ambient.Rollout, i int) bool {
	for _, step := range r.Steps[i+1:] {
		if step.Namespace.ID() == r.Steps[i].Namespace.ID() {
			return true
		}
	}
	return false
}

// TestRolloutMeetsOthers has something of another program in the place of a part of each plan: the
// error names it, and both namespaces stay as they were.
func TestRolloutMeetsOthers(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		for way, proxy := range ways() {
			for _, place := range []string{"node", "proxy"} {
				t.Run(fmt.Sprintf("%s %s %s", name, way, place), func(t *testing.T) {
					t.Parallel()
					node, pod := sandboxtest.NewPod(t), sandboxtest.NewPod(t)
					at := map[string]*sandboxtest.Pod{"node": node, "proxy": pod}[place]
					at.Run(t, "", "ip", "rule", "add", "fwmark", "0x1", "lookup", "7", "priority", map[string]string{"node": "103", "proxy": "20001"}[place])
					both := func() [2]string { return [2]string{contents(t, node), contents(t, pod)} }
					before := both()
					r, err := ambient.ProxySwitch{
						Owner: "test-ambient", Numbers: ambient.IstioNodeNumbers(), Node: node.Netns, Facts: bothFamilies(), Fresh: true,
						Successor: ambient.ProxyPod{Proxy: proxy, Namespace: pod.Netns, Facts: bothFamilies()},
					}.Rollout()
					if err != nil {
						t.Fatal(err)
					}
					var failed *interception.ApplyError
					if err := r.Apply(t.Context(), backend); !errors.As(err, &failed) {
						t.Errorf("%v, want an ApplyError", err)
					}
					if diff := cmp.Diff(before, both()); diff != "" {
						t.Errorf("(-before +after):\n%s", diff)
					}
				})
			}
		}
	}
}
