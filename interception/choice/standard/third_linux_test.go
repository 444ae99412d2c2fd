// SPDX-License-Identifier: Apache-2.0

package standard

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/backend"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/route"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// third keeps rules in the memory of package fake. All else of a plan reaches the kernel.
type third struct {
	memory *fake.Dataplane
	ns     *interception.Netns
	owner  interception.Owner
	record *sync.Map // route.Record by interception.NetnsID
}

// newThird returns a maker of dataplanes that share a memory.
func newThird() maker {
	memory, record := fake.New(fake.Options{}), &sync.Map{}
	return maker{"third", func(others []interception.Dataplane) (backend.Successor, error) {
		predecessors, err := backend.Predecessors(others)
		if err != nil {
			return nil, err
		}
		d := &backend.Dataplane{
			Open: func(ns *interception.Netns, owner interception.Owner) (backend.Rules, func(), error) {
				return &third{memory, ns, owner, record}, func() {}, nil
			},
			Supports: memory.Supports, Kernel: kernel.Of, Predecessors: predecessors,
		}
		return thirdDataplane{d, d.Heritage("third"), memory}, nil
	}}
}

// thirdDataplane has the memory's own method Supports.
type thirdDataplane struct {
	*backend.Dataplane
	backend.Heritage
	memory *fake.Dataplane
}

// Supports implements [interception.Dataplane].
func (d thirdDataplane) Supports(p *interception.Plan) error { return d.memory.Supports(p) }

// Look implements [backend.Rules].
func (r *third) Look(context.Context) (backend.Standing, error) {
	kept, _ := r.record.Load(r.ns.ID())
	record, _ := kept.(route.Record)
	return backend.Standing{Found: r.memory.Dump(r.ns) != "" || !record.IsEmpty(), Record: record}, nil
}

// Write implements [backend.Rules].
func (r *third) Write(ctx context.Context, p *interception.Plan, record route.Record) error {
	r.record.Store(r.ns.ID(), record)
	if rules := route.RulesOf(p); len(rules.Objects) > 0 {
		return r.memory.Apply(ctx, r.ns, rules)
	}
	return r.memory.Remove(ctx, r.ns, r.owner)
}

// Remember implements [backend.Rules].
func (r *third) Remember(_ context.Context, record route.Record) error {
	r.record.Store(r.ns.ID(), record)
	return nil
}

// Observe implements [backend.Rules].
func (r *third) Observe(ctx context.Context, state *interception.State) error {
	found, err := r.memory.Observe(ctx, r.ns, r.owner)
	state.Objects = append(state.Objects, found.Objects...)
	return err
}

// everything returns what the namespace has besides rules.
func everything(t testing.TB, pod *sandboxtest.Pod) string {
	t.Helper()
	return pod.Run(t, "", "ip", "-4", "rule") + pod.Run(t, "", "ip", "-o", "address", "show", "dev", "lo") +
		pod.Run(t, "", "cat", "/proc/sys/net/ipv4/ip_default_ttl")
}

// plan returns a plan with objects besides rules, some of which differ from plan to plan.
func plan(t testing.TB, value int) *interception.Plan {
	t.Helper()
	p, err := interception.Build("mesh-test", func(b *interception.Builder) {
		b.Address(interception.Address{ID: "an.address", Device: "lo", Prefix: netip.MustParsePrefix("10.9.0.1/32"), Why: "an address"})
		b.Sysctl(interception.Sysctl{ID: "a.ttl", Key: "ipv4/ip_default_ttl", Value: value, Why: "a sysctl"})
		b.PolicyRule(interception.PolicyRule{
			ID: "a.rule", Family: interception.IPv4, Mark: interception.WholeMark(1337), Table: 133, Priority: uint32(20000 + value), Why: "a policy rule",
		})
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "what the pod connects to")
		output.Do("output.all", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "to the proxy")
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestThird adds a backend to the list, and changes from each to each through choice. The rules of
// the one before are gone afterwards, all else is as if there had been only the last, and each can
// remove what any other has applied.
func TestThird(t *testing.T) {
	t.Parallel()
	makers := append(all(nftables.Options{}, iptables.Options{}), newThird())
	candidates, err := connect(makers)
	if err != nil {
		t.Fatal(err)
	}
	for i, from := range candidates {
		for j, to := range candidates {
			t.Run(fmt.Sprintf("%s to %s", from.Name, to.Name), func(t *testing.T) {
				t.Parallel()
				pod := sandboxtest.NewPod(t)
				before := everything(t, pod)
				apply(t, candidates[i:], pod, 65)
				apply(t, candidates[j:], pod, 66)
				if got := standing(t, makers, pod); !slices.Equal(got, []string{to.Name}) {
					t.Errorf("rules of %q stand, want those of %s", got, to.Name)
				}
				direct := sandboxtest.NewPod(t)
				apply(t, candidates[j:j+1], direct, 66)
				if diff := cmp.Diff(everything(t, direct), everything(t, pod)); diff != "" {
					t.Errorf("not as in a fresh namespace (-fresh +got):\n%s", diff)
				}
				if err := from.Dataplane.Remove(t.Context(), pod.Netns, "mesh-test"); err != nil {
					t.Fatal(err)
				}
				if got := standing(t, makers, pod); len(got) > 0 {
					t.Errorf("rules of %q are left", got)
				}
				if diff := cmp.Diff(before, everything(t, pod)); diff != "" {
					t.Errorf("Remove left something (-before +after):\n%s", diff)
				}
			})
		}
	}
}

// apply applies a plan with the first of the candidates, and observes it with all of them.
func apply(t testing.TB, candidates []choice.Candidate, pod *sandboxtest.Pod, value int) {
	t.Helper()
	d, err := choice.New(candidates...)
	if err != nil {
		t.Fatal(err)
	}
	by, err := d.ApplyBy(t.Context(), pod.Netns, plan(t, value))
	if err != nil || by != candidates[0].Name {
		t.Fatalf("applied by %s: %v", by, err)
	}
	state, err := d.Observe(t.Context(), pod.Netns, "mesh-test")
	if drifts := interception.Diff(plan(t, value), state); err != nil || drifts != nil {
		t.Errorf("observed: %v, %v", drifts, err)
	}
}

// standing returns the candidates that have rules in the pod.
func standing(t testing.TB, makers []maker, pod *sandboxtest.Pod) []string {
	t.Helper()
	var names []string
	for _, m := range makers {
		d, err := m.make(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, found, err := d.Remembered(t.Context(), pod.Netns, "mesh-test"); err != nil {
			t.Fatal(err)
		} else if found {
			names = append(names, m.name)
		}
	}
	return names
}

// TestThirdFailsToLeave has the third's rules stand with an unreadable record: no successor touches
// them, and the error names what is wrong.
func TestThirdFailsToLeave(t *testing.T) {
	t.Parallel()
	stubborn := maker{"stubborn", func([]interception.Dataplane) (backend.Successor, error) { return unreadable{}, nil }}
	candidates, err := connect(append(all(nftables.Options{}, iptables.Options{}), stubborn))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range candidates[:2] {
		pod := sandboxtest.NewPod(t)
		before := everything(t, pod)
		err := c.Dataplane.Apply(t.Context(), pod.Netns, plan(t, 65))
		if err == nil || !strings.Contains(err.Error(), "rules of stubborn: recorded") {
			t.Errorf("%s: got %v", c.Name, err)
		}
		if diff := cmp.Diff(before, everything(t, pod)); diff != "" {
			t.Errorf("%s: something was written (-before +after):\n%s", c.Name, diff)
		}
	}
}

// unreadable is a dataplane with a record that has no meaning here.
type unreadable struct{ backend.Successor }

// Name implements [backend.Predecessor].
func (unreadable) Name() string { return "stubborn" }

// Remembered implements [backend.Predecessor].
func (unreadable) Remembered(context.Context, *interception.Netns, interception.Owner) ([]string, bool, error) {
	return []string{"in another language"}, true, nil
}
