// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// observed returns the state of a namespace right after the plan was applied.
func observed(p *Plan) State {
	return State{Owner: p.Owner, Objects: slices.Clone(p.Objects)}
}

// editOutput changes the rules of the chain output without changing the plan's memory.
func editOutput(s State, edit func([]Rule) []Rule) State {
	for i, object := range s.Objects {
		table, ok := object.(Table)
		if !ok {
			continue
		}
		table.Chains = slices.Clone(table.Chains)
		for j, chain := range table.Chains {
			if chain.Name == "output" {
				table.Chains[j].Rules = edit(slices.Clone(chain.Rules))
			}
		}
		s.Objects[i] = table
	}
	return s
}

func diffPlan(t *testing.T) *Plan {
	t.Helper()
	plan, err := Build("test-mesh", func(b *Builder) {
		set := b.Set("some", Prefixes(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24")), "some prefixes")
		b.Address(Address{ID: "address", Device: "lo", Prefix: netip.MustParsePrefix("::6/128"), Why: "an address"})
		c := b.NAT("output")
		c.Entry(Output, Match{}, "what leaves")
		c.Do("one", Match{UID: Is(UIDs(1))}, Return{}, "rule one")
		c.Do("two", Match{UID: Is(UIDs(2))}, Return{}, "rule two")
		c.Do("three", Match{DstSet: Is(set)}, Return{}, "rule three")
		c.Do("four", Match{L4: TCP()}, RedirectTo{15001}, "rule four")
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestDiffOfAnEmptyChain adds a rule to a chain that is empty in the plan.
func TestDiffOfAnEmptyChain(t *testing.T) {
	t.Parallel()
	plan, err := Build("test-mesh", func(b *Builder) { b.NAT("output") })
	if err != nil {
		t.Fatal(err)
	}
	state := editOutput(observed(plan), func([]Rule) []Rule { return []Rule{{Action: Accept{}}} })
	if drifts := Diff(plan, state); len(drifts) != 1 || drifts[0].Kind != DriftExtra {
		t.Errorf("Diff = %v, want one rule too many", drifts)
	}
}

func TestDiffOfWhatWasApplied(t *testing.T) {
	t.Parallel()
	if drifts := Diff(diffPlan(t), observed(diffPlan(t))); drifts != nil {
		t.Errorf("Diff = %v, want nothing", drifts)
	}
}

func TestDiffOfNoPlan(t *testing.T) {
	t.Parallel()
	if drifts := Diff(nil, State{}); drifts != nil {
		t.Errorf("Diff = %v, want nothing", drifts)
	}
	state := observed(diffPlan(t))
	for _, drift := range Diff(nil, state) {
		if drift.Kind != DriftExtra || drift.Want != "" {
			t.Errorf("got %v, want only parts that are there and not wanted", drift)
		}
	}
	if len(Diff(nil, state)) == 0 {
		t.Error("a namespace with rules is no different from no plan")
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	rules := func(edit func([]Rule) []Rule) func(State) State {
		return func(s State) State { return editOutput(s, edit) }
	}
	objects := func(edit func([]Object) []Object) func(State) State {
		return func(s State) State { s.Objects = edit(s.Objects); return s }
	}
	for _, tc := range []struct {
		name string
		edit func(State) State
		want []string
	}{
		{"a rule is gone", rules(func(r []Rule) []Rule { return slices.Delete(r, 1, 2) }), []string{"nat/output: missing two (rule two): want uid 2 -> return"}},
		{
			"two rules are swapped", rules(func(r []Rule) []Rule { r[0], r[1] = r[1], r[0]; return r }),
			[]string{"nat/output: moved one (rule one): want uid 1 -> return: got uid 1 -> return"},
		},
		{
			"the first rule is the last", rules(func(r []Rule) []Rule { return append(r[1:], r[0]) }),
			[]string{"nat/output: moved one (rule one): want uid 1 -> return: got uid 1 -> return"},
		},
		{
			"a verdict is another", rules(func(r []Rule) []Rule { r[1].Action = Accept{}; return r }),
			[]string{"nat/output: changed two (rule two): want uid 2 -> return: got uid 2 -> accept"},
		},
		{
			"a comment lies", rules(func(r []Rule) []Rule { r[1].Match.UID = Is(UIDs(7)); return r }),
			[]string{"nat/output: changed two (rule two): want uid 2 -> return: got uid 7 -> return"},
		},
		{
			"a rule cannot be decoded", rules(func(r []Rule) []Rule { r[1] = Rule{ID: "two", Action: Opaque{Text: "quota"}}; return r }),
			[]string{"nat/output: changed two (rule two): want uid 2 -> return: got any -> opaque: quota"},
		},
		{
			"a rule is more", rules(func(r []Rule) []Rule { return slices.Insert(r, 0, Rule{Action: Return{}}) }),
			[]string{"nat/output: extra: got any -> return"},
		},
		{
			"a rule is twice", rules(func(r []Rule) []Rule { return append(r, r[3]) }),
			[]string{"nat/output: extra: got tcp -> redirect to :15001"},
		},
		{
			"all is gone", func(State) State { return State{} },
			[]string{
				"addresses: missing address (an address): want address ::6/128 dev lo", "set some: missing: want fixed set of v4",
				"set some: missing: want 10.0.0.0/8", "set some: missing: want 192.0.2.0/24",
				"nat hook output: missing nat.output.output (what leaves): want hook output: any -> jump output",
				"nat/output: missing: want chain output",
				"nat/output: missing one (rule one): want uid 1 -> return", "nat/output: missing two (rule two): want uid 2 -> return",
				"nat/output: missing three (rule three): want dst @some -> return",
				"nat/output: missing four (rule four): want tcp -> redirect to :15001",
			},
		},
		{
			"a hook has another priority", objects(func(o []Object) []Object {
				table, _ := o[2].(Table)
				table.Entries = slices.Clone(table.Entries)
				table.Entries[0].Offset = 10
				o[2] = table
				return o
			}),
			[]string{"nat hook output: changed nat.output.output (what leaves): want hook output: any -> jump output: got hook output+10: any -> jump output"},
		},
		{
			"a member is another", objects(func(o []Object) []Object {
				set, _ := o[1].(Set)
				set.Members = Prefixes(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.3.0/24"))
				o[1] = set
				return o
			}),
			[]string{"set some: missing: want 192.0.2.0/24", "set some: extra: got 192.0.3.0/24"},
		},
		{
			"an object is more", objects(func(o []Object) []Object {
				return append(o, Route{Destination: netip.MustParsePrefix("10.0.0.0/8"), Device: "eth0"})
			}),
			[]string{"routes: extra: got route unicast 10.0.0.0/8 dev eth0 table main"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, drift := range Diff(diffPlan(t), tc.edit(observed(diffPlan(t)))) {
				text := drift.String()
				if drift.At == "set some" {
					text = strings.Replace(text, " (some prefixes)", "", 1)
				}
				got = append(got, text)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("Diff =\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// TestDiffOfManyMembers must not take quadratic time.
func TestDiffOfManyMembers(t *testing.T) {
	t.Parallel()
	var prefixes []netip.Prefix
	for i := range 20000 {
		prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 26))
	}
	set := func(members ...netip.Prefix) []Object {
		return []Object{Set{Name: "many", Family: IPv4, Members: Prefixes(members...), Why: "many"}}
	}
	drifts := Diff(&Plan{Owner: "test-mesh", Objects: set(prefixes...)}, State{Objects: set(prefixes[1:]...)})
	if len(drifts) != 1 || drifts[0].Want != prefixes[0].String() {
		t.Errorf("Diff = %v, want the first member to be missing", drifts)
	}
}

// TestDiffWhatNoPacketTells has a state as the iptables backend reads it: without sets, and with
// hooks and families listed separately.
func TestDiffWhatNoPacketTells(t *testing.T) {
	t.Parallel()
	prefixes := func(text string) Condition[PrefixSet] { return Is(Prefixes(netip.MustParsePrefix(text))) }
	write := func(sets, v4First bool) *Plan {
		plan, err := Build("test-mesh", func(b *Builder) {
			c, d := b.NAT("output"), b.NAT("input")
			c.Entry(Output, Match{}, "what leaves")
			d.Entry(Prerouting, Match{}, "what comes")
			members := Match{Dst: prefixes("10.0.0.0/8")}
			if sets {
				members = Match{DstSet: Not(b.Set("some", Prefixes(netip.MustParsePrefix("10.0.0.0/8")), "some prefixes"))}
			} else {
				members.Dst = Not(members.Dst.Set())
			}
			c.Do("set", members, Return{}, "why")
			c.Do("all", Match{L4: UDP()}, Return{}, "why")
			rules := []func(){
				func() { c.Do("v4", Match{Dst: prefixes("192.0.2.0/24")}, Return{}, "why") },
				func() { c.Do("v6", Match{Dst: prefixes("::1/128")}, Return{}, "why") },
			}
			if !v4First {
				slices.Reverse(rules)
			}
			for _, rule := range rules {
				rule()
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if !v4First {
			for table := range plan.Tables() {
				slices.Reverse(table.Entries)
			}
		}
		return plan
	}
	for _, v4First := range []bool{true, false} {
		if drifts := Diff(write(true, v4First), observed(write(false, true))); drifts != nil {
			t.Errorf("Diff = %v, want nothing", drifts)
		}
	}
	if got, want := write(true, true).WithoutSets().String(), write(false, true).String(); got != want {
		t.Errorf("WithoutSets returns\n%swant\n%s", got, want)
	}
	other := editOutput(observed(write(false, true)), func(rules []Rule) []Rule {
		rules[1], rules[2] = rules[2], rules[1]
		return rules
	})
	if drifts := Diff(write(true, true), other); len(drifts) != 1 || drifts[0].Kind != DriftMoved {
		t.Errorf("Diff = %v, want one rule that moved", drifts)
	}
}

// TestDiffWithoutPriorities has entries that an offset moves, in a state whose hooks have none.
func TestDiffWithoutPriorities(t *testing.T) {
	t.Parallel()
	write := func(first, second int32) *Plan {
		plan, err := Build("test-mesh", func(b *Builder) {
			b.NAT("first").EntryAt(Output, first, Match{}, "why")
			b.NAT("second").EntryAt(Output, second, Match{}, "why")
		})
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	state := observed(write(0, 0))
	state.NoPriorities = true
	if drifts := Diff(write(-10, 5), state); drifts != nil {
		t.Errorf("Diff = %v, want nothing: the entries are in this order", drifts)
	}
	if drifts := Diff(write(5, -10), state); len(drifts) != 1 || drifts[0].Kind != DriftMoved {
		t.Errorf("Diff = %v, want one entry that moved", drifts)
	}
}
