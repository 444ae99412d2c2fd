// SPDX-License-Identifier: Apache-2.0

package proof_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/trace"
)

type m = interception.Match

func built(t *testing.T, fill func(b *interception.Builder)) *interception.Plan {
	t.Helper()
	plan, err := interception.Build("my-mesh", fill)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func set(prefixes ...string) interception.PrefixSet {
	var all []netip.Prefix
	for _, p := range prefixes {
		all = append(all, netip.MustParsePrefix(p))
	}
	return interception.Prefixes(all...)
}

// mangled returns a plan with one chain of the mangle table.
func mangled(t *testing.T, hook interception.Hook, fill func(c *interception.ChainRef[interception.MangleAction])) *interception.Plan {
	t.Helper()
	return built(t, func(b *interception.Builder) {
		c := b.Mangle("chain")
		c.Entry(hook, m{}, "why")
		fill(c)
	})
}

func TestEquivalent(t *testing.T) {
	t.Parallel()
	type chain = *interception.ChainRef[interception.MangleAction]
	drop, markOne := interception.Drop{}, interception.SetMark{Mark: interception.WholeMark(1)}
	one := interception.Is(interception.WholeMark(1))
	for name, c := range map[string]struct {
		hook interception.Hook
		a, b func(c chain)
		want string // of the answer's text, a part
	}{
		"ports as one rule and as two": {
			interception.Output,
			func(c chain) { c.Do("both", m{L4: interception.TCP().To(interception.PortRange(1, 9))}, drop, "why") },
			func(c chain) {
				c.Do("low", m{L4: interception.TCP().To(interception.PortRange(1, 5))}, drop, "why")
				c.Do("high", m{L4: interception.TCP().To(interception.PortRange(4, 9))}, drop, "why")
			}, "yes",
		},
		"one port less": {
			interception.Output,
			func(c chain) { c.Do("both", m{L4: interception.TCP().To(interception.PortRange(1, 9))}, drop, "why") },
			func(c chain) { c.Do("both", m{L4: interception.TCP().To(interception.PortRange(1, 8))}, drop, "why") },
			"no: tcp uid 1000 gid 1000 > 198.51.100.1:9\n  first: dropped",
		},
		"a negation is of one family": {
			interception.Output,
			func(c chain) { c.Do("not", m{Dst: interception.Not(set("10.0.0.0/8"))}, drop, "why") },
			func(c chain) {
				c.Do("is", m{Dst: interception.Is(set("10.0.0.0/8"))}, interception.Return{}, "why")
				c.Do("all", m{}, drop, "why")
			}, "no: tcp uid 1000 gid 1000 > [2001:db8::1]:8080",
		},
		"a mark that is written and asked": {
			interception.Output,
			func(c chain) {
				c.Do("mark", m{L4: interception.UDP()}, markOne, "why")
				c.Do("drop", m{L4: interception.UDP(), Mark: one}, drop, "why")
			},
			func(c chain) { c.Do("drop", m{L4: interception.UDP()}, drop, "why") }, "yes",
		},
		"a mark that stays": {
			interception.Postrouting,
			func(c chain) { c.Do("mark", m{L4: interception.UDP()}, markOne, "why") },
			func(chain) {}, "no: udp uid 1000 gid 1000 > 198.51.100.1:8080",
		},
		"marks that are saved and restored": {
			interception.Output,
			func(c chain) {
				c.Do("save", m{Mark: one}, interception.SaveMark{}, "why")
				c.Do("drop", m{ConnMark: one, Mark: one}, drop, "why")
			},
			func(c chain) {
				c.Do("set", m{Mark: one}, interception.SetConnMark{Mark: interception.WholeMark(1)}, "why")
				c.Do("drop", m{Mark: one, State: interception.Not(interception.StateInvalid)}, drop, "why")
			}, "yes",
		},
		"a mark of the connection": {
			interception.Prerouting,
			func(c chain) { c.Do("restore", m{ConnMark: one}, interception.RestoreMark{}, "why") },
			func(c chain) { c.Do("mark", m{ConnMark: one}, markOne, "why") }, "yes",
		},
		"established": {
			interception.Prerouting,
			func(c chain) { c.Do("drop", m{State: interception.Is(interception.StateEstablished)}, drop, "why") },
			func(chain) {}, "first: dropped",
		},
		"a reply is established": {
			interception.Prerouting,
			func(c chain) { c.Do("drop", m{Direction: interception.DirectionReply}, drop, "why") },
			func(c chain) {
				c.Do("drop", m{Direction: interception.DirectionReply, State: interception.Is(interception.StateEstablished)}, drop, "why")
			}, "yes",
		},
		"an established packet goes in either direction": {
			interception.Prerouting,
			func(c chain) { c.Do("drop", m{State: interception.Is(interception.StateEstablished)}, drop, "why") },
			func(c chain) { c.Do("drop", m{Direction: interception.DirectionReply}, drop, "why") }, "no: ",
		},
		"all that has a flow has a direction": {
			interception.Output,
			func(c chain) {
				c.Do("drop.original", m{Direction: interception.DirectionOriginal}, drop, "why")
				c.Do("drop.reply", m{Direction: interception.DirectionReply}, drop, "why")
			},
			func(c chain) {
				without := interception.StateInvalid | interception.StateUntracked
				c.Do("drop", m{State: interception.Not(without)}, drop, "why")
			}, "yes",
		},
		"a pattern and a name": {
			interception.Prerouting,
			func(c chain) { c.Do("drop", m{In: interception.Is(interception.Interfaces("net*"))}, drop, "why") },
			func(c chain) { c.Do("drop", m{In: interception.Is(interception.Interfaces("net1"))}, drop, "why") },
			"in net0",
		},
		"owners come back over lo without their sockets": {
			interception.Input,
			func(c chain) { c.Do("drop", m{L4: interception.TCP().Flags(interception.Opening())}, drop, "why") },
			func(c chain) {
				c.Do("drop", m{L4: interception.TCP().NotFlags(interception.Opening())}, interception.Return{}, "why")
				c.Do("rest", m{L4: interception.TCP()}, drop, "why")
			}, "yes",
		},
		"what is logged": {
			interception.Output,
			func(c chain) { c.Do("log", m{}, interception.Log{Prefix: "x"}, "why") }, func(chain) {}, "yes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := proof.Equivalent(mangled(t, c.hook, c.a), mangled(t, c.hook, c.b), proof.Options{})
			if err != nil || !strings.Contains(got.String(), c.want) {
				t.Errorf("%v, %v", got, err)
			}
			if back, err := proof.Equivalent(mangled(t, c.hook, c.b), mangled(t, c.hook, c.a), proof.Options{}); err != nil || back.Answer != got.Answer {
				t.Errorf("the other way round: %v, %v", back, err)
			}
		})
	}
}

// Members of live sets are free: plans are alike if they are for all members, and the
// counterexample has some.
func TestEquivalentWithLiveSets(t *testing.T) {
	t.Parallel()
	spares := func(chained, negated bool) *interception.Plan {
		return built(t, func(b *interception.Builder) {
			pods := b.LiveSet("pods", interception.IPv4, "why")
			c := b.Filter("output")
			c.Entry(interception.Output, m{}, "why")
			switch {
			case negated:
				c.Do("drop", m{DstSet: interception.Not(pods)}, interception.Drop{}, "why")
			case chained:
				c.Do("spare", m{DstSet: interception.Not(pods)}, interception.Return{}, "why")
				c.Do("drop", m{Family: interception.IPv4}, interception.Drop{}, "why")
			default:
				c.Do("drop", m{DstSet: interception.Is(pods)}, interception.Drop{}, "why")
			}
		})
	}
	if got, err := proof.Equivalent(spares(false, false), spares(true, false), proof.Options{}); err != nil || got.Answer != proof.Yes {
		t.Errorf("%v, %v", got, err)
	}
	got, err := proof.Equivalent(spares(false, false), spares(false, true), proof.Options{})
	if err != nil || got.Answer != proof.No || got.Outcomes[0].Verdict == got.Outcomes[1].Verdict {
		t.Errorf("%v, %v", got, err)
	}
	world := proof.World(spares(false, false))
	world.Namespaces[0].LiveSets = []trace.LiveSet{{Owner: "my-mesh", Name: "pods", Members: set("0.0.0.0/1", "128.0.0.0/1")}}
	empty := built(t, func(b *interception.Builder) {
		b.LiveSet("pods", interception.IPv4, "why")
		c := b.Filter("output")
		c.Entry(interception.Output, m{}, "why")
		c.Do("drop", m{Family: interception.IPv4}, interception.Drop{}, "why")
	})
	if got, err := proof.Equivalent(spares(false, false), empty, proof.Options{World: world}); err != nil || got.Answer != proof.Yes {
		t.Errorf("with all members given: %v, %v", got, err)
	}
}

// withOpaque returns the state of a plan that drops TCP to port 80, after an undecoded rule for
// some packets.
func withOpaque(t *testing.T, port interception.Port, reached interception.L4) interception.State {
	t.Helper()
	plan := built(t, func(b *interception.Builder) {
		foreign := b.Filter("foreign")
		c := b.Filter("output")
		c.Entry(interception.Output, m{}, "why")
		c.Do("drop", m{L4: interception.TCP().To(interception.Ports(port))}, interception.Drop{}, "why")
		c.Call("foreign", m{L4: reached}, foreign, "why")
		foreign.Do("opaque", m{}, interception.Drop{}, "why")
	})
	table, _ := plan.Objects[0].(interception.Table)
	table.Chains[0].Rules[0] = interception.Rule{Action: interception.Opaque{Text: "xt match bpf"}}
	return interception.State{Owner: plan.Owner, Objects: plan.Objects}
}

func TestEquivalentWithOpaqueRules(t *testing.T) {
	t.Parallel()
	udp := interception.UDP()
	got, err := proof.Equivalent(withOpaque(t, 80, udp), withOpaque(t, 80, udp), proof.Options{})
	if err != nil || got.Answer != proof.Unknown || len(got.Undecoded) == 0 || got.Undecoded[0].Rule.Action.String() != "opaque: xt match bpf" {
		t.Errorf("%v, %v", got, err)
	}
	if !strings.Contains(got.String(), "filter/foreign[0] observed.") {
		t.Errorf("it doesn't name the rule: %s", got)
	}
	got, err = proof.Equivalent(withOpaque(t, 80, udp), withOpaque(t, 81, udp), proof.Options{})
	if err != nil || got.Answer != proof.No {
		t.Errorf("a difference that no opaque rule is about: %v, %v", got, err)
	}
	unreached := withOpaque(t, 80, interception.TCP().To(interception.Ports(80)))
	plan := built(t, func(b *interception.Builder) {
		c := b.Filter("output")
		c.Entry(interception.Output, m{}, "why")
		c.Do("drop", m{L4: interception.TCP().To(interception.Ports(80))}, interception.Drop{}, "why")
	})
	if got, err = proof.Equivalent(plan, unreached, proof.Options{}); err != nil || got.Answer != proof.Yes {
		t.Errorf("an opaque rule that nothing reaches: %v, %v", got, err)
	}
	x := explained(t, withOpaque(t, 80, udp), "udp out")
	if len(x.Regions) != 1 || x.Regions[0].Effect != proof.Undecoded {
		t.Errorf("explained:\n%s", x)
	}
	if found, err := proof.Lint(withOpaque(t, 80, udp), proof.Options{}); err != nil || found != nil {
		t.Errorf("%v, %v", found, err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	plan := goldenPlans(t)["default"]
	invalid := &interception.Plan{Owner: "x"}
	for name, c := range map[string]struct {
		a, b *interception.Plan
		o    proof.Options
		want error
	}{
		"an invalid plan":     {invalid, plan, proof.Options{}, interception.ErrPlan},
		"a second one":        {plan, invalid, proof.Options{}, interception.ErrPlan},
		"an impossible world": {plan, plan, proof.Options{World: trace.World{Namespaces: []trace.Namespace{{}}}}, trace.ErrWorld},
		"too few nodes":       {plan, plan, proof.Options{MaxNodes: 5000}, proof.ErrTooLarge},
	} {
		if got, err := proof.Equivalent(c.a, c.b, c.o); !errors.Is(err, c.want) || got.Answer != 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := proof.Explain(plan, proof.Query{}, proof.Options{MaxNodes: 5000}); !errors.Is(err, proof.ErrTooLarge) {
		t.Errorf("explain: %v", err)
	}
	if _, err := proof.Lint(plan, proof.Options{MaxNodes: 500}); !errors.Is(err, proof.ErrTooLarge) {
		t.Errorf("lint: %v", err)
	}
	var none *interception.Plan
	if _, err := proof.Lint(none, proof.Options{}); err == nil {
		t.Error("a plan that is nil is taken")
	}
}

// TestUnknownAcrossNamespaces has a world in which eth0 leads to another namespace. What leaves by
// it is unknown, even to a plan that changes nothing.
func TestUnknownAcrossNamespaces(t *testing.T) {
	t.Parallel()
	nothing := built(t, func(*interception.Builder) {})
	drops := built(t, func(b *interception.Builder) {
		c := b.Mangle("drops")
		c.Entry(interception.Input, m{}, "why")
		c.Do("drop", m{L4: interception.UDP()}, interception.Drop{}, "why")
	})
	world := proof.World(nothing)
	world.Namespaces = append(world.Namespaces, trace.Namespace{Name: "other", Links: []trace.Link{trace.Loopback(), {Name: "eth0"}}})
	if got, err := proof.Equivalent(nothing, nothing, proof.Options{World: world}); err != nil || got.Answer != proof.Yes {
		t.Errorf("without a wire: %v, %v", got, err)
	}
	world.Wires = []trace.Wire{{Ends: []trace.WireEnd{{Namespace: "pod", Link: "eth0"}, {Namespace: "other", Link: "eth0"}}}}
	if got, err := proof.Equivalent(nothing, nothing, proof.Options{World: world}); err != nil || got.Answer != proof.Unknown ||
		!strings.Contains(got.String(), "beyond") {
		t.Errorf("with a wire: %v, %v", got, err)
	}
	if got, err := proof.Equivalent(nothing, drops, proof.Options{World: world}); err != nil || got.Answer != proof.No {
		t.Errorf("what stays here: %v, %v", got, err)
	}
}
