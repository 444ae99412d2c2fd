// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
)

// crowd has many rules of other programs, also in hooks.
func crowd() string {
	var b strings.Builder
	b.WriteString("*nat\n-N CROWD\n-A OUTPUT -j CROWD\n-A PREROUTING -j CROWD\n")
	for i := range 300 {
		fmt.Fprintf(&b, "-A CROWD -d 10.96.0.%d/32 -m comment --comment \"to MESH-TEST_OUTPUT\" -j RETURN\n", i%250)
	}
	b.WriteString("COMMIT\n*filter\n-A INPUT -p icmp -j ACCEPT\nCOMMIT\n")
	return b.String()
}

func newCrowdedPod(t *testing.T, flavour iptables.Flavour) *pod {
	t.Helper()
	ns := newPod(t)
	ns.load(t, flavour, crowd())
	ns.Run(t, crowd6(), "ip6tables-"+string(flavour)+"-restore", "--noflush")
	return ns
}

func crowd6() string {
	return strings.NewReplacer("10.96.0.", "fd00::", "/32", "/128", "icmp", "ipv6-icmp").Replace(crowd())
}

// lists reports whether a command only lists chains.
func lists(c iptables.Command) bool {
	return strings.HasSuffix(c.Args[0], "-save") || strings.Contains(string(c.Stdin), "\n-S ")
}

// TestCrowded applies plans beside many rules of others, which no program lists.
func TestCrowded(t *testing.T) {
	t.Parallel()
	plan := tamperPlan(t)
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns, empty := newCrowdedPod(t, flavour), newPod(t)
		before := ns.rules(t)
		count := &counted{Runner: iptables.DefaultRunner()}
		dp := dataplane(t, iptables.Options{Flavour: flavour, Runner: count})
		for _, in := range []*pod{ns, empty} {
			if err := dp.Apply(t.Context(), in.Netns, plan); err != nil {
				t.Fatal(err)
			}
		}
		applied := ns.rules(t)
		count.programs()
		if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
			t.Fatal(err)
		}
		state, err := dp.Observe(t.Context(), ns.Netns, plan.Owner)
		if drifts := interception.Diff(plan, state); err != nil || drifts != nil {
			t.Errorf("observed: %v, %v", drifts, err)
		}
		for _, command := range count.commands {
			if !lists(command) || strings.HasSuffix(command.Args[0], "-save") {
				t.Errorf("beside many rules of others, %q with %q is started", command.Args, command.Stdin)
			}
		}
		alone, err := dp.Observe(t.Context(), empty.Netns, plan.Owner)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(fmt.Sprint(alone.Objects), fmt.Sprint(state.Objects)); diff != "" {
			t.Errorf("not as without others (-without +beside):\n%s", diff)
		}
		if diff := cmp.Diff(applied, ns.rules(t)); diff != "" {
			t.Errorf("the second Apply changed something:\n%s", diff)
		}
		if err := dp.Remove(t.Context(), ns.Netns, plan.Owner); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(lines(before), lines(ns.rules(t))); diff != "" {
			t.Errorf("Remove left something, or took too much:\n%s", diff)
		}
	})
}

// TestCrowdedTampering has another program lead into the owner's chains, from a chain of its own
// and from a hook, and change them.
func TestCrowdedTampering(t *testing.T) {
	t.Parallel()
	plan := tamperPlan(t)
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns := newCrowdedPod(t, flavour)
		dp := dataplane(t, iptables.Options{Flavour: flavour})
		if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
			t.Fatal(err)
		}
		before := ns.rules(t)
		for _, edit := range []string{"-I OUTPUT 2 -j MESH-TEST_CALLED", "-I MESH-TEST_OUTPUT -j RETURN", "-N MESH-TEST_MORE", "-F MESH-TEST_CALLED"} {
			ns.load(t, flavour, "*nat\n"+edit+"\nCOMMIT\n")
			state, err := dp.Observe(t.Context(), ns.Netns, plan.Owner)
			if drifts := interception.Diff(plan, state); err != nil || drifts == nil {
				t.Errorf("%s: observed no drift, %v", edit, err)
			}
			if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
				t.Errorf("%s: %v", edit, err)
			}
			if diff := cmp.Diff(lines(before), lines(ns.rules(t))); diff != "" {
				t.Errorf("%s is not mended (-before +after):\n%s", edit, diff)
			}
		}
		ns.load(t, flavour, "*nat\n-N FOREIGN\n-A FOREIGN -j MESH-TEST_CALLED\nCOMMIT\n")
		if err := dp.Remove(t.Context(), ns.Netns, plan.Owner); err == nil || !strings.Contains(err.Error(), "-A FOREIGN -j MESH-TEST_CALLED") {
			t.Errorf("got %v, want the rule that is in the way", err)
		}
	})
}

// deaf fails restore programs that are asked to list chains, as one may that does not know how to.
type deaf struct{}

// Run is [iptables.Runner.Run].
func (deaf) Run(ctx context.Context, command iptables.Command) (iptables.Output, error) {
	if lists(command) && !strings.HasSuffix(command.Args[0], "-save") {
		return iptables.Output{Stderr: []byte("unknown option")}, errors.New("exit status 2")
	}
	return iptables.DefaultRunner().Run(ctx, command)
}

// TestCrowdedOtherPrograms has programs that list no single chains: all rules are listed.
func TestCrowdedOtherPrograms(t *testing.T) {
	t.Parallel()
	plan := tamperPlan(t)
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns := newCrowdedPod(t, flavour)
		dp := dataplane(t, iptables.Options{Flavour: flavour, Runner: deaf{}})
		if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
			t.Fatal(err)
		}
		state, err := dp.Observe(t.Context(), ns.Netns, plan.Owner)
		if drifts := interception.Diff(plan, state); err != nil || drifts != nil {
			t.Errorf("observed: %v, %v", drifts, err)
		}
	})
}

// TestFirstBesideOthers applies a plan that needs a record before its rules: the jumps of a hook go
// ahead of those of others if one of them has to, however little of these has been read. In another
// hook they go last.
func TestFirstBesideOthers(t *testing.T) {
	t.Parallel()
	plan := build(t, "mesh-test", func(b *interception.Builder) {
		b.Sysctl(interception.Sysctl{ID: "a.sysctl", Key: "ipv4/ip_default_ttl", Value: 65, Why: "a former value to remember"})
		b.NAT("first").EntryAt(interception.Output, -2, interception.Match{}, "before all others")
		b.NAT("second").EntryAt(interception.Output, -1, interception.Match{}, "and then this")
		b.NAT("third").EntryAt(interception.Output, 1, interception.Match{}, "beside these")
		b.NAT("last").EntryAt(interception.Prerouting, 1, interception.Match{}, "after all others")
	})
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns := newCrowdedPod(t, flavour)
		if err := dataplane(t, iptables.Options{Flavour: flavour}).Apply(t.Context(), ns.Netns, plan); err != nil {
			t.Fatal(err)
		}
		rules := ns.rules(t, flavour)
		for hook, want := range map[string][]string{
			"OUTPUT": {"MESH-TEST_FIRST", "MESH-TEST_SECOND", "MESH-TEST_THIRD", "CROWD"}, "PREROUTING": {"CROWD", "MESH-TEST_LAST"},
		} {
			var got []string
			for line := range strings.Lines(rules) {
				words := strings.Fields(line)
				if slices.Contains(words, "-A") && slices.Contains(words, hook) && strings.HasPrefix(line, "iptables") {
					got = append(got, words[len(words)-1])
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("the hook %s leads to %q, want %q", hook, got, want)
			}
		}
	})
}

// TestCrowdedUndo fails Remove after each of its commits, some of which leave a table, or a family,
// without chains of the owner: each jump is back between the rules of others where it was.
func TestCrowdedUndo(t *testing.T) {
	t.Parallel()
	plan := build(t, "mesh-test", func(b *interception.Builder) {
		b.Mangle("a").Entry(interception.Output, interception.Match{}, "among others")
		b.NAT("a").Entry(interception.Output, interception.Match{}, "among others")
	})
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns := newCrowdedPod(t, flavour)
		others := func(port int) {
			for _, table := range []string{"mangle", "nat"} {
				ns.load(t, flavour, fmt.Sprintf("*%s\n-A OUTPUT -p tcp -m tcp --dport %d -j RETURN\nCOMMIT\n", table, port))
			}
		}
		others(1)
		if err := dataplane(t, iptables.Options{Flavour: flavour}).Apply(t.Context(), ns.Netns, plan); err != nil {
			t.Fatal(err)
		}
		others(2)
		before := ns.rules(t)
		for commits := 0; ; commits++ {
			failing := &failedOnce{commits: commits}
			err := dataplane(t, iptables.Options{Flavour: flavour, Runner: failing}).Remove(t.Context(), ns.Netns, plan.Owner)
			if !failing.failed {
				if err != nil || commits < 2 {
					t.Errorf("after %d commits: %v", commits, err)
				}
				return
			}
			if diff := cmp.Diff(before, ns.rules(t)); diff != "" || err == nil {
				t.Fatalf("after %d commits: %v (-before +after):\n%s", commits, err, diff)
			}
		}
	})
}

// failedOnce fails the first program that changes something, after a number of commits.
type failedOnce struct {
	commits int
	failed  bool
}

// Run is [iptables.Runner.Run].
func (f *failedOnce) Run(ctx context.Context, command iptables.Command) (iptables.Output, error) {
	if f.failed || lists(command) {
		return iptables.DefaultRunner().Run(ctx, command)
	}
	one := &cut{commits: f.commits}
	out, err := one.Run(ctx, command)
	f.commits, f.failed = one.commits, one.killed
	return out, err
}
