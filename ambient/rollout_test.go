// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// errInjected is what a recorder answers instead of doing something.
var errInjected = errors.New("injected")

// recorder is an Applier that remembers which plan each namespace has, and fails at one call.
type recorder struct {
	has map[interception.NetnsID]*interception.Plan
	// failAt is the number of the call that fails, and done whether it does its work all the same.
	// From broken on, all calls fail.
	failAt, broken int
	done           bool
	calls          int
	after          func(*recorder)
}

func (r *recorder) Supports(p *interception.Plan) error {
	if p.Owner == "test-refused" {
		return interception.ErrUnsupported
	}
	return nil
}

func (r *recorder) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	return r.change(ctx, func() { r.has[ns.ID()] = p })
}

func (r *recorder) Remove(ctx context.Context, ns *interception.Netns, _ interception.Owner) error {
	return r.change(ctx, func() { delete(r.has, ns.ID()) })
}

func (r *recorder) change(ctx context.Context, do func()) error {
	r.calls++
	fails := r.calls == r.failAt || r.broken > 0 && r.calls >= r.broken
	if err := ctx.Err(); err != nil {
		return err
	}
	if !fails || r.done {
		do()
	}
	if r.after != nil {
		r.after(r)
	}
	if fails {
		return errInjected
	}
	return nil
}

// switches returns every kind of switch, by a name.
func switches() map[string]ProxySwitch {
	standIn := func(name string, inode uint64) *interception.Netns {
		return interception.StandInNetns(name, interception.NetnsID{Inode: inode})
	}
	pod := func(generation uint8, way Way) ProxyPod {
		p := nodeProxy()
		p.Generation, p.Way, p.Namespace = generation, way, fmt.Sprintf("proxy-%d", generation)
		return ProxyPod{Proxy: p, Namespace: standIn(p.Namespace, uint64(generation)), Facts: dual()}
	}
	base := ProxySwitch{Owner: "test-ambient", Numbers: IstioNodeNumbers(), Node: standIn("node", 1), Facts: dual()}
	all := map[string]ProxySwitch{}
	for _, way := range []Way{WayVeth, WayVXLAN} {
		add := func(name string, former, successor ProxyPod, fresh bool) {
			s := base
			s.Former, s.Successor, s.Fresh = former, successor, fresh
			all[name+" "+way.String()] = s
		}
		add("first proxy of a fresh node", ProxyPod{}, pod(7, way), true)
		add("first proxy of a node without one", ProxyPod{}, pod(7, way), false)
		add("another proxy", pod(7, way), pod(8, way), false)
		add("another way", pod(7, WayVeth), pod(8, way), false)
		add("no proxy any more", pod(7, way), ProxyPod{}, false)
	}
	noProxy := base
	noProxy.Fresh = true
	all["a fresh node without a proxy"] = noProxy
	return all
}

// starting returns a recorder whose namespaces have what they should have before a rollout.
func starting(r Rollout) *recorder {
	d := &recorder{has: map[interception.NetnsID]*interception.Plan{}}
	for _, former := range r.Former {
		d.has[former.Namespace.ID()] = former.Plan
	}
	return d
}

// servedBy returns the generation of the proxy that a plan of the node sends new connections to:
// the one whose route is that for their mark.
func servedBy(p *interception.Plan) (generation string, captures bool) {
	var mark interception.MarkBits
	for _, r := range p.Rules() {
		if set, is := r.Action.(interception.SetConnMark); is && strings.HasPrefix(string(r.ID), "outbound.open") {
			mark = set.Mark
		}
	}
	tables := map[interception.RoutingTable]string{}
	for route := range interception.ObjectsOf[interception.Route](p) {
		if name, is := strings.CutPrefix(string(route.Device), "istioout"); is {
			tables[route.Table] = name
		}
	}
	for rule := range interception.ObjectsOf[interception.PolicyRule](p) {
		if name, captures := tables[rule.Table]; captures && rule.Mark == mark {
			return name, true
		}
	}
	return "", false
}

// lawful checks after a step that captured connections go to a proxy that is ready, and that a node
// which is not fresh goes on capturing.
func lawful(t *testing.T, s ProxySwitch, d *recorder) {
	t.Helper()
	node := d.has[s.Node.ID()]
	if node == nil {
		if !s.Fresh {
			t.Errorf("after call %d the node has no plan", d.calls)
		}
		return
	}
	generation, captures := servedBy(node)
	if !captures {
		return
	}
	for _, p := range []ProxyPod{s.Former, s.Successor} {
		if p.Proxy.IsZero() || fmt.Sprint(p.Proxy.Generation) != generation {
			continue
		}
		serves := d.has[p.Namespace.ID()]
		if serves == nil || !strings.Contains(serves.String(), "pistioout"+generation) {
			t.Errorf("after call %d the node captures for generation %s, whose namespace is not ready", d.calls, generation)
		}
		return
	}
	t.Errorf("after call %d the node captures for generation %q, which is neither proxy's", d.calls, generation)
}

// TestRolloutOrder has each kind of switch succeed, and fail at each step, before its work and
// after it.
func TestRolloutOrder(t *testing.T) {
	t.Parallel()
	for name, s := range switches() {
		r, err := s.Rollout()
		if err != nil {
			t.Fatal(err)
		}
		for failAt := range len(r.Steps) + 1 {
			for _, done := range []bool{false, true} {
				d := starting(r)
				before := maps.Clone(d.has)
				d.failAt, d.done, d.after = failAt, done, func(d *recorder) { lawful(t, s, d) }
				err := r.Apply(t.Context(), d)
				if failAt == 0 {
					node := d.has[s.Node.ID()]
					if _, captures := servedBy(node); err != nil || captures == s.Successor.Proxy.IsZero() {
						t.Errorf("%s: %v\n%s", name, err, node)
					}
					continue
				}
				var failed *RolloutError
				if !errors.As(err, &failed) || !errors.Is(err, errInjected) || failed.Step != failAt-1 || len(failed.Back) > 0 {
					t.Errorf("%s, failing at %d: %v", name, failAt, err)
				}
				if !maps.EqualFunc(before, d.has, func(a, b *interception.Plan) bool { return a.Fingerprint() == b.Fingerprint() }) {
					t.Errorf("%s, failing at %d: there is %v, want %v", name, failAt, d.has, before)
				}
			}
		}
		d := starting(r)
		d.after = func(d *recorder) {
			lawful(t, ProxySwitch{Node: s.Node, Former: s.Former, Successor: s.Successor, Fresh: true}, d)
		}
		if err := errors.Join(r.Apply(t.Context(), d), r.Remove(t.Context(), d)); err != nil || len(d.has) > 0 {
			t.Errorf("%s: after Remove: %v, %v", name, err, d.has)
		}
	}
}

// TestRolloutThatCannotGoBack fails at a step and on the way back.
func TestRolloutThatCannotGoBack(t *testing.T) {
	t.Parallel()
	r, err := switches()["another proxy veth"].Rollout()
	if err != nil {
		t.Fatal(err)
	}
	d := starting(r)
	d.broken = 3
	var failed *RolloutError
	err = r.Apply(t.Context(), d)
	if !errors.As(err, &failed) || len(failed.Back) != 3 || !strings.Contains(err.Error(), "apply the rollout again") {
		t.Fatalf("%v, want 3 errors of the way back", err)
	}
	d.broken = 0
	if err := r.Apply(t.Context(), d); err != nil {
		t.Errorf("applied again: %v", err)
	}
}

// TestRolloutGoesBackAfterItsContext ends the context in the middle.
func TestRolloutGoesBackAfterItsContext(t *testing.T) {
	t.Parallel()
	r, err := switches()["another proxy veth"].Rollout()
	if err != nil {
		t.Fatal(err)
	}
	d := starting(r)
	before := maps.Clone(d.has)
	ctx, cancel := context.WithCancel(t.Context())
	d.after = func(*recorder) { cancel() }
	if err := r.Apply(ctx, d); !errors.Is(err, context.Canceled) || !maps.Equal(before, d.has) {
		t.Errorf("%v, and there is %v, want %v", err, d.has, before)
	}
}

// TestRolloutRemoveStops fails to remove the node's plan: the proxy's stays.
func TestRolloutRemoveStops(t *testing.T) {
	t.Parallel()
	s := switches()["first proxy of a fresh node veth"]
	r, err := s.Rollout()
	if err != nil {
		t.Fatal(err)
	}
	d := starting(r)
	if err := r.Apply(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.broken = d.calls + 1
	if err := r.Remove(t.Context(), d); !errors.Is(err, errInjected) || len(d.has) != 2 || d.calls != d.broken {
		t.Errorf("%v after %d calls, and there is %v, want both plans", err, d.calls, d.has)
	}
}

// TestRolloutIsChecked refuses rollouts before their first step.
func TestRolloutIsChecked(t *testing.T) {
	t.Parallel()
	s := switches()["another proxy veth"]
	for name, test := range map[string]struct {
		change func(*Rollout)
		want   error
	}{
		"no namespace":   {func(r *Rollout) { r.Steps[2].Namespace = nil }, interception.ErrNotNetns},
		"a closed one":   {func(*Rollout) { _ = s.Successor.Namespace.Close() }, os.ErrClosed},
		"another owner":  {func(r *Rollout) { r.Owner = "test-other" }, ErrRollout},
		"no label":       {func(r *Rollout) { r.Steps[0].Namespace = s.Node }, interception.ErrNotNetns},
		"no support":     {func(r *Rollout) { r.Owner, r.Steps[4].Plan, r.Former = "test-refused", unsupported(t), nil }, interception.ErrUnsupported},
		"no way back":    {func(r *Rollout) { r.Former[0].Namespace = &interception.Netns{} }, interception.ErrNotNetns},
		"another former": {func(r *Rollout) { r.Former[0].Plan = unsupported(t) }, ErrRollout},
	} {
		s = switches()["another proxy veth"]
		r, err := s.Rollout()
		if err != nil {
			t.Fatal(err)
		}
		if test.change(&r); name == "no support" {
			r.Steps = r.Steps[4:]
		}
		d := starting(Rollout{})
		if err := r.Apply(t.Context(), d); !errors.Is(err, test.want) || d.calls > 0 {
			t.Errorf("%s: %v after %d calls, want %v", name, err, d.calls, test.want)
		}
	}
}

func unsupported(t *testing.T) *interception.Plan {
	t.Helper()
	plan, err := NodePlan(NodeProxy{}, IstioNodeNumbers(), dual(), "test-refused")
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestProxySwitchIsChecked refuses proxies that cannot be switched.
func TestProxySwitchIsChecked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*ProxySwitch)
		want   error
	}{
		"a fresh node with a proxy": {func(s *ProxySwitch) { s.Fresh = true }, ErrRollout},
		"the same label":            {func(s *ProxySwitch) { s.Successor.Proxy.Namespace = s.Former.Proxy.Namespace }, ErrRollout},
		"the same generation":       {func(s *ProxySwitch) { s.Successor.Proxy.Generation = s.Former.Proxy.Generation }, ErrNodeProxy},
		"no numbers":                {func(s *ProxySwitch) { s.Numbers = NodeNumbers{} }, ErrNumbers},
		"a proxy without a family": {
			func(s *ProxySwitch) {
				s.Successor.Proxy.Addresses, s.Successor.Facts = s.Successor.Proxy.Addresses[1:], interception.Facts{}
			}, ErrNodeProxy,
		},
	} {
		s := switches()["another proxy veth"]
		test.change(&s)
		if r, err := s.Rollout(); !errors.Is(err, test.want) || r.Steps != nil {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// TestProxySwitchInPlace has both proxies in one namespace: its plan is replaced, and not removed.
func TestProxySwitchInPlace(t *testing.T) {
	t.Parallel()
	s := switches()["another way vxlan"]
	s.Successor.Namespace = s.Former.Namespace
	r, err := s.Rollout()
	if err != nil {
		t.Fatal(err)
	}
	d := starting(r)
	if err := r.Apply(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	last := slices.Collect(maps.Values(d.has))
	if len(last) != 2 || !strings.Contains(d.has[s.Former.Namespace.ID()].String(), "pistioout8") {
		t.Errorf("%v, want the successor's plan in the namespace", last)
	}
}
