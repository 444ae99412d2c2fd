// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/dataplanetest/fake"
)

// faulty is the fake dataplane with a fault: each of its methods calls a function for the plan, the
// error or the state to go on with.
type faulty struct {
	*fake.Dataplane
	apply    func(f *fake.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error
	remove   func(f *fake.Dataplane, ctx context.Context, ns *interception.Netns, owner interception.Owner) error
	observe  func(state interception.State) interception.State
	supports func(f *fake.Dataplane, p *interception.Plan) error
}

func (f faulty) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	if f.apply == nil {
		return f.Dataplane.Apply(ctx, ns, p)
	}
	return f.apply(f.Dataplane, ctx, ns, p)
}

func (f faulty) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	if f.remove == nil {
		return f.Dataplane.Remove(ctx, ns, owner)
	}
	return f.remove(f.Dataplane, ctx, ns, owner)
}

func (f faulty) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	state, err := f.Dataplane.Observe(ctx, ns, owner)
	if f.observe != nil {
		state = f.observe(state)
	}
	return state, err
}

func (f faulty) Supports(p *interception.Plan) error {
	if f.supports == nil {
		return f.Dataplane.Supports(p)
	}
	return f.supports(f.Dataplane, p)
}

// TestPanic fails by the dataplane's panic, on request.
func TestPanic(t *testing.T) {
	t.Parallel()
	if *breach != "panic" {
		return
	}
	f := faulty{Dataplane: fake.New(fake.Options{})}
	f.remove = func(*fake.Dataplane, context.Context, *interception.Netns, interception.Owner) error {
		panic("of the test")
	}
	dataplanetest.Conformance(t, dataplanetest.ConformanceOptions{
		New: func(testing.TB) interception.Dataplane { return f }, Ground: memory{f.Dataplane},
		Without: map[dataplanetest.Law]string{dataplanetest.LawPackets: "what is in memory has no packets"},
	})
}

// A dataplane that panics fails only the laws in which it does so.
func TestOtherLawsAreTestedDespiteAPanic(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestPanic$", "-breach=panic")
	output, err := command.CombinedOutput()
	text := string(output)
	if err == nil || !strings.Contains(text, "Remove panicked: of the test") || !strings.Contains(text, "Remove with a nil namespace") {
		t.Errorf("%v: the panic is not told:\n%s", err, text)
	}
	for law, result := range map[dataplanetest.Law]string{
		dataplanetest.LawIdempotent: "PASS", dataplanetest.LawOrder: "PASS", dataplanetest.LawDrift: "PASS",
		dataplanetest.LawRemoves: "FAIL", dataplanetest.LawRefusals: "FAIL",
	} {
		if line := "--- " + result + ": TestPanic/" + string(law) + " "; !strings.Contains(text, line) {
			t.Errorf("no %q in:\n%s", line, text)
		}
	}
}

// vacant is a ground that adds no foreign objects to namespaces.
type vacant struct{ memory }

func (vacant) Occupy(testing.TB, *interception.Netns, *interception.Plan) {}

// TestVacant fails by the ground, on request.
func TestVacant(t *testing.T) {
	t.Parallel()
	if *breach != "vacant" {
		return
	}
	f := fake.New(fake.Options{})
	dataplanetest.Conformance(t, dataplanetest.ConformanceOptions{
		New: func(testing.TB) interception.Dataplane { return f }, Ground: vacant{memory{f}},
		Without: map[dataplanetest.Law]string{dataplanetest.LawPackets: "what is in memory has no packets"},
	})
}

func TestGroundThatOccupiesNothingIsFound(t *testing.T) {
	t.Parallel()
	output, err := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVacant$", "-breach=vacant").CombinedOutput()
	if err == nil || !strings.Contains(string(output), "Occupy puts nothing into the namespace") {
		t.Errorf("%v: not found:\n%s", err, output)
	}
}

// faults are dataplanes that break the law of their name, and possibly others.
func faults() map[dataplanetest.Law]faulty {
	var mu sync.Mutex
	busy := false
	return map[dataplanetest.Law]faulty{
		dataplanetest.LawIdempotent: {apply: func(f *fake.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
			if state, err := f.Observe(ctx, ns, p.Owner); err == nil && len(state.Objects) > 0 {
				return f.Apply(ctx, ns, changed(p, func(objects []interception.Object) []interception.Object { return append(objects, mark) }))
			}
			return f.Apply(ctx, ns, p)
		}},
		dataplanetest.LawReplaces: {apply: func(f *fake.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
			state, err := f.Observe(ctx, ns, p.Owner)
			if err == nil && slices.ContainsFunc(state.Objects, isRoute) && !slices.ContainsFunc(p.Objects, isRoute) && len(p.Objects) > 0 {
				p = changed(p, func(objects []interception.Object) []interception.Object { return append(objects, mark) })
			}
			return f.Apply(ctx, ns, p)
		}},
		dataplanetest.LawRemoves: {remove: func(f *fake.Dataplane, ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
			if state, err := f.Observe(ctx, ns, owner); err == nil && len(state.Objects) == 0 {
				return errors.New("there is nothing to be removed")
			}
			return f.Remove(ctx, ns, owner)
		}},
		dataplanetest.LawForeign: {remove: func(f *fake.Dataplane, ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
			return errors.Join(f.Remove(ctx, ns, owner), f.Remove(ctx, ns, "some-body"))
		}},
		dataplanetest.LawAdopts: {apply: func(f *fake.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
			if f.Apply(ctx, ns, p) == nil {
				return nil
			}
			return errors.Join(f.Remove(ctx, ns, "some-body"), f.Apply(ctx, ns, p))
		}},
		dataplanetest.LawOwnersApart: {apply: func(f *fake.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
			other := map[interception.Owner]interception.Owner{"mesh-conform": "mesh-other", "mesh-other": "mesh-conform"}[p.Owner]
			return errors.Join(f.Apply(ctx, ns, p), f.Remove(ctx, ns, other))
		}},
		dataplanetest.LawOrder: {observe: func(state interception.State) interception.State {
			return inTables(state, func(rules []interception.Rule) { slices.Reverse(rules) })
		}},
		dataplanetest.LawFamilies: {observe: func(state interception.State) interception.State {
			return inTables(state, func(rules []interception.Rule) {
				for i := range rules {
					rules[i].Match.Family = interception.IPv4
				}
			})
		}},
		dataplanetest.LawObserves: {observe: func(state interception.State) interception.State {
			return interception.State{Owner: state.Owner}
		}},
		dataplanetest.LawDrift: {observe: func(state interception.State) interception.State {
			state.Objects = slices.DeleteFunc(state.Objects, isRoute)
			return state
		}},
		dataplanetest.LawPriorities: {observe: func(state interception.State) interception.State {
			for _, object := range state.Objects {
				if table, ok := object.(interception.Table); ok {
					for i := range table.Entries {
						table.Entries[i].Offset = 0
					}
				}
			}
			return state
		}},
		dataplanetest.LawSupports: {supports: func(f *fake.Dataplane, p *interception.Plan) error {
			if slices.ContainsFunc(p.Objects, func(o interception.Object) bool { _, is := o.(interception.Link); return is }) {
				return interception.ErrUnsupported
			}
			return f.Supports(p)
		}},
		dataplanetest.LawRefusals: {apply: func(f *fake.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
			return f.Apply(context.WithoutCancel(ctx), ns, p)
		}},
		dataplanetest.LawFailures: {apply: func(f *fake.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
			err := f.Apply(ctx, ns, p)
			if errors.Is(err, context.Canceled) && p.Validate() == nil && ns.Check() == nil {
				f.Edit(ns, p.Owner, func(objects []interception.Object) []interception.Object { return append(objects, mark) })
			}
			return err
		}},
		dataplanetest.LawSets: {observe: func(state interception.State) interception.State {
			state.Owners = nil
			return state
		}},
		dataplanetest.LawParallel: {apply: func(f *fake.Dataplane, ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
			mu.Lock()
			crowd := len(f.Calls()) > crowded && busy
			busy = true
			mu.Unlock()
			if crowd {
				return errors.New("others are at work")
			}
			return f.Apply(ctx, ns, p)
		}},
	}
}

// crowded is the number of calls before the dataplane of the law about many namespaces fails.
const crowded = 40

// mark is an object that no case has.
var mark = interception.Sysctl{ID: "left.behind", Key: "ipv4/ip_no_pmtu_disc", Value: 1, Why: "left behind"}

func isRoute(o interception.Object) bool { _, is := o.(interception.Route); return is }

func changed(p *interception.Plan, change func([]interception.Object) []interception.Object) *interception.Plan {
	return &interception.Plan{Owner: p.Owner, Objects: change(slices.Clone(p.Objects))}
}

func inTables(state interception.State, change func(rules []interception.Rule)) interception.State {
	for _, object := range state.Objects {
		if table, ok := object.(interception.Table); ok {
			for _, chain := range table.Chains {
				change(chain.Rules)
			}
		}
	}
	return state
}

// breach names the fault that TestBreach has, in the process that TestEachBreachIsFound starts.
var breach = flag.String("breach", "", "the law that TestBreach breaks")

// TestBreach fails on request.
func TestBreach(t *testing.T) {
	t.Parallel()
	law := dataplanetest.Law(*breach)
	f, asked := faults()[law]
	if !asked {
		return
	}
	f.Dataplane = fake.New(fake.Options{})
	without := map[dataplanetest.Law]string{}
	for _, other := range dataplanetest.Laws() {
		if other != law {
			without[other] = "it is not what this is about"
		}
	}
	dataplanetest.Conformance(t, dataplanetest.ConformanceOptions{
		New: func(testing.TB) interception.Dataplane { return f }, Ground: memory{f.Dataplane}, Without: without,
	})
}

// TestEachBreachIsFound has a dataplane for each law that breaks it. Other tests use real packets.
func TestEachBreachIsFound(t *testing.T) {
	t.Parallel()
	for _, law := range dataplanetest.Laws() {
		if law == dataplanetest.LawPackets {
			continue
		}
		t.Run(string(law), func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBreach$", "-breach="+string(law))
			output, err := command.CombinedOutput()
			if err == nil || !strings.Contains(string(output), `law "`+string(law)+`"`) {
				t.Errorf("%v: not found:\n%s", err, output)
			}
		})
	}
}
