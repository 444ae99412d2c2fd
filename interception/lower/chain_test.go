// SPDX-License-Identifier: Apache-2.0

package lower_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// build returns a plan, which must be valid.
func build(t testing.TB, fill func(*interception.Builder)) *interception.Plan {
	t.Helper()
	plan, err := interception.Build("mesh-test", fill)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestBaseChains has an entry in every hook of every table.
func TestBaseChains(t *testing.T) {
	t.Parallel()
	plan := build(t, func(b *interception.Builder) {
		entries(b.Filter("chain"), interception.Filter)
		entries(b.Raw("chain"), interception.Raw)
		entries(b.Mangle("chain"), interception.Mangle)
		entries(b.NAT("chain"), interception.NAT)
	})
	var got []string
	for _, c := range lower.Chains(plan) {
		if c.Base == nil {
			got = append(got, fmt.Sprintf("%s: of %s", c.Name, c.Table))
			continue
		}
		got = append(got, fmt.Sprintf("%s: of %s, %s %s %d", c.Name, c.Table, c.Base.Type, c.Base.Hook, c.Base.Priority))
	}
	// As in iptables: linux/netfilter_ipv4.h, and for the type route the tables' modules.
	want := []string{
		"hook.filter.input: of filter, filter input 0",
		"hook.filter.forward: of filter, filter forward 0",
		"hook.filter.output: of filter, filter output 0",
		"filter-chain: of filter",
		"hook.raw.prerouting: of raw, filter prerouting -300",
		"hook.raw.output: of raw, filter output -300",
		"raw-chain: of raw",
		"hook.mangle.prerouting: of mangle, filter prerouting -150",
		"hook.mangle.input: of mangle, filter input -150",
		"hook.mangle.forward: of mangle, filter forward -150",
		"hook.mangle.output: of mangle, route output -150",
		"hook.mangle.postrouting: of mangle, filter postrouting -150",
		"mangle-chain: of mangle",
		"hook.nat.prerouting: of nat, nat prerouting -100",
		"hook.nat.input: of nat, nat input 100",
		"hook.nat.output: of nat, nat output -100",
		"hook.nat.postrouting: of nat, nat postrouting 100",
		"nat-chain: of nat",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("chains (-want +got):\n%s", diff)
	}
}

func entries[A interception.Action](c *interception.ChainRef[A], kind interception.TableKind) {
	for _, hook := range kind.Hooks() {
		c.Entry(hook, interception.Match{}, "an entry")
	}
}

// TestRules checks that rules and entries keep the plan's fields, and where jumps lead.
func TestRules(t *testing.T) {
	t.Parallel()
	plan := build(t, func(b *interception.Builder) {
		called, output := b.NAT("called"), b.NAT("output")
		called.Entry(interception.Output, interception.Match{L4: interception.UDP()}, "one")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "two")
		output.Call("the.jump", interception.Match{Family: interception.IPv6}, called, "three")
		output.Do("the.end", interception.Match{}, interception.Accept{}, "four")
	})
	var got, comments, want []string
	for _, c := range lower.Chains(plan) {
		for _, r := range c.Rules {
			got = append(got, fmt.Sprintf("%s: %q %s: %s: %s", c.Name, r.Match, r.Action, r.ID, r.Why))
			comments = append(comments, r.Comment)
		}
	}
	for table := range plan.Tables() {
		for _, e := range table.Entries {
			want = append(want, e.Comment())
		}
	}
	for _, r := range plan.Rules() {
		want = append(want, r.Comment())
	}
	if diff := cmp.Diff(want, comments); diff != "" {
		t.Errorf("comments (-want +got):\n%s", diff)
	}
	want = []string{
		`hook.nat.output: "udp" jump nat-called: nat.output.called: one`,
		`hook.nat.output: "tcp" jump nat-output: nat.output.output: two`,
		`nat-output: "v6" jump nat-called: the.jump: three`,
		`nat-output: "" accept: the.end: four`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

// TestAlternatives checks which rules together implement one rule of a plan.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	patterns := interception.Is(interception.Interfaces("lo", "eth0", "eth1", "eth*", "net1*", "net10*", "net2"))
	plan := build(t, func(b *interception.Builder) {
		c := b.Filter("forward")
		c.Entry(interception.Forward, interception.Match{In: patterns}, "an entry")
		c.Do("the.pairs", interception.Match{In: patterns, Out: interception.Is(interception.Interfaces("a*", "b*"))}, interception.Return{}, "pairs")
		c.Do("the.rest", interception.Match{In: interception.Not(interception.Interfaces("a*", "b"))}, interception.Reject{}, "rejects")
		c.Do("the.udp", interception.Match{L4: interception.UDP()}, interception.Reject{}, "rejects")
		b.Mangle("in").Do("the.proxy", interception.Match{L4: interception.TCP()},
			interception.TProxyTo{Port: 15006, Mark: interception.WholeMark(1)}, "proxies")
	})
	var got []string
	for _, c := range lower.Chains(plan) {
		for _, r := range c.Rules {
			got = append(got, fmt.Sprintf("%s: %s -> %s", r.ID, r.Match, r.Action))
		}
	}
	want := []string{
		"filter.forward.forward: in lo,net2 -> jump filter-forward",
		"filter.forward.forward: in eth* -> jump filter-forward",
		"filter.forward.forward: in net1* -> jump filter-forward",
		"the.pairs: in lo,net2 out a* -> return",
		"the.pairs: in lo,net2 out b* -> return",
		"the.pairs: in eth* out a* -> return",
		"the.pairs: in eth* out b* -> return",
		"the.pairs: in net1* out a* -> return",
		"the.pairs: in net1* out b* -> return",
		"the.rest: in != a*,b tcp -> reject",
		"the.rest: in != a*,b -> reject",
		"the.udp: udp -> reject",
		"the.proxy: tcp -> tproxy to :15006 mark 0x1",
		"the.proxy: tcp -> drop",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}
