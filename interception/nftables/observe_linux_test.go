// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/golden"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

func (p *pod) observe(t testing.TB, owner interception.Owner) interception.State {
	t.Helper()
	state, err := dataplane(t).Observe(t.Context(), p.Netns, owner)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// observed checks that the state after Apply is the plan, without drift.
func observed(t *testing.T, ns *pod, plan *interception.Plan) {
	t.Helper()
	ns.apply(t, plan)
	state := ns.observe(t, plan.Owner)
	if drifts := interception.Diff(plan, state); drifts != nil {
		t.Errorf("right after Apply:\n%s", driftText(drifts))
	}
	if state.Deviations != nil {
		t.Errorf("deviations: %v", state.Deviations)
	}
	if diff := cmp.Diff(remembered(plan.Objects), remembered(state.Objects)); diff != "" {
		t.Errorf("the objects (-plan +observed):\n%s", diff)
	}
}

// observedText checks that the rules are also the plan's when nft has loaded the plan's script, as
// nft uses other expressions for the same rules.
func observedText(t *testing.T, plan *interception.Plan) {
	t.Helper()
	script, err := render.NFT(plan)
	if err != nil {
		t.Fatal(err)
	}
	ns, rules := newPod(t), *plan
	rules.Objects = slices.DeleteFunc(slices.Clone(plan.Objects), func(o interception.Object) bool {
		switch o.(type) {
		case interception.Set, interception.Table:
			return false
		default:
			return true
		}
	})
	ns.load(t, string(script))
	if drifts := interception.Diff(&rules, ns.observe(t, plan.Owner)); drifts != nil {
		t.Errorf("written by nft:\n%s\nscript:\n%s", driftText(drifts), script)
	}
}

// remembered returns objects as text, without what the kernel does not keep: the ids and reasons of
// all but sets and rules, the order of all but rules, and provenance.
func remembered(objects []interception.Object) []string {
	var lines []string
	var rest []interception.Object
	for _, object := range objects {
		switch o := object.(type) {
		case interception.Link:
			lines = append(lines, fmt.Sprint("link ", o.Name, o.Geneve))
		case interception.Address:
			lines = append(lines, fmt.Sprint("address ", o.Device, o.Prefix))
		case interception.Sysctl:
			lines = append(lines, fmt.Sprint("sysctl ", o.Key, o.Value))
		case interception.Route:
			lines = append(lines, fmt.Sprint("route ", o.Type, o.Destination, o.Device, o.Gateway, o.Table))
		case interception.PolicyRule:
			lines = append(lines, fmt.Sprint("rule ", o.Family, o.Mark, o.Table, o.Priority))
		case interception.Table:
			if len(o.Chains) == 0 {
				continue
			}
			o.Entries = slices.Clone(o.Entries)
			slices.SortStableFunc(o.Entries, func(a, b interception.Entry) int { return int(a.Hook) - int(b.Hook) })
			for i := range o.Chains {
				o.Chains[i].Rules = slices.Clone(o.Chains[i].Rules)
				for j := range o.Chains[i].Rules {
					o.Chains[i].Rules[j].From = nil
				}
			}
			rest = append(rest, o)
		case interception.Set:
			o.From = nil
			rest = append(rest, o)
		}
	}
	slices.Sort(lines)
	plan := interception.Plan{Objects: rest}
	return append(lines, strings.Split(plan.String(), "\n")...)
}

func driftText(drifts []interception.Drift) string {
	var b strings.Builder
	for _, d := range drifts {
		fmt.Fprintln(&b, d)
	}
	return b.String()
}

func TestObserveGoldenPlans(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"../sidecar/testdata", "../sidecar/testdata/" + golden.LargeIDs} {
		cases, err := golden.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			t.Run(c.Name, func(t *testing.T) {
				t.Parallel()
				plan, _, err := c.Plan()
				if err != nil {
					t.Fatal(err)
				}
				observed(t, newPod(t), plan)
				observedText(t, plan)
			})
		}
	}
}

func TestObserveRandomPlans(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			plan := randomPlan(t, rand.New(rand.NewPCG(seed, 1)))
			observed(t, newPod(t), plan)
			observedText(t, plan)
		})
	}
}

// TestObserveMatches has every way in which a condition is encoded.
func TestObserveMatches(t *testing.T) {
	t.Parallel()
	observed(t, newPod(t), matchesPlan(t))
	observedText(t, matchesPlan(t))
}

// TestObserveActions has every action.
func TestObserveActions(t *testing.T) {
	t.Parallel()
	plan := build(t, "mesh-test", actions)
	observed(t, newPod(t), plan)
	observedText(t, plan)
}

// TestObserveNetwork has every kind of object.
func TestObserveNetwork(t *testing.T) {
	t.Parallel()
	observed(t, newNetworkPod(t), network(t, 133, "10.1.0.1/24", "fd01::1/64"))
}

// TestObserveWhatWasThere has a sysctl and an address of the plan from before: they count, too.
func TestObserveWhatWasThere(t *testing.T) {
	t.Parallel()
	plan := build(t, "mesh-test", func(b *interception.Builder) {
		b.Address(interception.Address{ID: "address", Device: "lo", Prefix: netip.MustParsePrefix("10.9.0.1/32"), Why: "an address"})
		b.Sysctl(interception.Sysctl{ID: "sysctl", Key: localnet, Value: 0, Why: "a sysctl"})
	})
	ns := newPod(t)
	ns.ip(t, "address", "add", "10.9.0.1/32", "dev", "lo")
	observed(t, ns, plan)
	ns.ip(t, "address", "del", "10.9.0.1/32", "dev", "lo")
	if drifts := interception.Diff(plan, ns.observe(t, plan.Owner)); len(drifts) != 1 || drifts[0].Kind != interception.DriftMissing {
		t.Errorf("the address is gone:\n%s", driftText(drifts))
	}
	observed(t, ns, plan)
}

func TestObserveNothing(t *testing.T) {
	t.Parallel()
	ns := newPod(t)
	ns.load(t, foreign)
	state := ns.observe(t, "mesh-test")
	if diff := cmp.Diff(interception.State{Owner: "mesh-test"}, state); diff != "" {
		t.Errorf("of an owner who has nothing (-want +got):\n%s", diff)
	}
}

// TestApplyUnchanged has nothing to write: no transaction, no change by rtnetlink, no sysctl.
func TestApplyUnchanged(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]*interception.Plan{
		"rules":   build(t, "mesh-test", actions),
		"sidecar": sidecarPlan(t, prefixes("10.0.0.0/8", "fc00::/7")),
		"network": network(t, 133, "10.1.0.1/24", "fd01::1/64"),
		"edited":  edited(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := newNetworkPod(t)
			ns.apply(t, plan)
			dp := dataplane(t).Through(func(in *os.File) kernel.Namespace {
				return kerneltest.Interfere(kernel.Of(in), func(c kerneltest.Call, do func() error) error {
					if c.Changes() {
						t.Errorf("%s, though nothing differs", c.What)
					}
					return do()
				})
			})
			if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestApplyKeepsWords rewrites the rules when only their comments differ.
func TestApplyKeepsWords(t *testing.T) {
	t.Parallel()
	plan := func(why string) *interception.Plan {
		return build(t, "mesh-test", func(b *interception.Builder) {
			b.NAT("output").Do("a.rule", interception.Match{}, interception.Return{}, why)
		})
	}
	ns := newPod(t)
	ns.apply(t, plan("one reason"))
	ns.apply(t, plan("another reason"))
	if rules := ns.ruleset(t); !strings.Contains(rules, "another reason") {
		t.Errorf("the comment is as it was:\n%s", rules)
	}
}
