// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
)

// tamperPlan has jumps of both kinds, several chains, and a chain that another one calls.
func tamperPlan(t testing.TB) *interception.Plan {
	t.Helper()
	plan := capture(t, 15001, func(b *interception.Builder) {
		first := b.NAT("first")
		first.Entry(interception.Output, interception.Match{}, "before all others")
		called := b.NAT("called")
		called.Do("a.return", interception.Match{UID: interception.Is(interception.UIDs(0))}, interception.Return{}, "a reason")
		first.Call("a.call", interception.Match{L4: interception.TCP()}, called, "a call")
		b.Mangle("in").Entry(interception.Prerouting, interception.Match{L4: interception.UDP()}, "UDP comes in")
	})
	for table := range plan.Tables() {
		for i := range table.Entries {
			if table.Entries[i].Chain == "first" {
				table.Entries[i].Offset = -1
			}
		}
	}
	return plan
}

// foreign has rules of other programs.
const foreign = `*nat
-N FOREIGN
-A FOREIGN -j RETURN
-A OUTPUT -p tcp -m comment --comment "-j MESH-TEST_OUTPUT" -j FOREIGN
-A OUTPUT -m comment --comment -j -j RETURN
COMMIT
*filter
-A INPUT -p icmp -j ACCEPT
COMMIT
`

// TestTampering has another program edit the owner's rules: Apply restores these, and no others.
func TestTampering(t *testing.T) {
	t.Parallel()
	plan := tamperPlan(t)
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		for name, edits := range map[string]string{
			"nothing":          "",
			"a rule more":      "*nat\n-A MESH-TEST_OUTPUT -j ACCEPT\nCOMMIT\n",
			"a rule before":    "*nat\n-I MESH-TEST_OUTPUT 1 -j RETURN\nCOMMIT\n",
			"a chain emptied":  "*nat\n-F MESH-TEST_OUTPUT\nCOMMIT\n",
			"a chain more":     "*nat\n-N MESH-TEST_MORE\n-A MESH-TEST_MORE -j MESH-TEST_CALLED\n-A OUTPUT -j MESH-TEST_MORE\nCOMMIT\n",
			"another table":    "*filter\n-N MESH-TEST_MORE\n-I INPUT -j MESH-TEST_MORE\nCOMMIT\n",
			"a jump away":      "*nat\n-D OUTPUT -p tcp -m comment --comment \"nat.output.output HASH connections from the pod\" -j MESH-TEST_OUTPUT\nCOMMIT\n",
			"a jump twice":     "*nat\n-A OUTPUT -p tcp -m comment --comment \"nat.output.output HASH connections from the pod\" -j MESH-TEST_OUTPUT\nCOMMIT\n",
			"a jump to accept": "*nat\n-I OUTPUT -g MESH-TEST_CALLED\nCOMMIT\n",
		} {
			ns, undisturbed := newPod(t), newPod(t)
			dp := dataplane(t, iptables.Options{Flavour: flavour})
			for _, pod := range []*pod{ns, undisturbed} {
				pod.load(t, flavour, foreign)
				if err := dp.Apply(t.Context(), pod.Netns, plan); err != nil {
					t.Fatal(err)
				}
			}
			before := ns.rules(t)
			i := strings.Index(before, "nat.output.output ") + len("nat.output.output ")
			ns.load(t, flavour, strings.ReplaceAll(edits, "HASH", before[i:i+8]))
			if name != "nothing" && ns.rules(t) == before {
				t.Errorf("%s: the edit changed nothing", name)
			}
			if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(lines(undisturbed.rules(t)), lines(ns.rules(t))); diff != "" {
				t.Errorf("%s is not mended (-before +after):\n%s", name, diff)
			}
			if err := dp.Remove(t.Context(), ns.Netns, plan.Owner); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			alone := newPod(t)
			alone.load(t, flavour, foreign)
			if diff := cmp.Diff(lines(alone.rules(t)), lines(ns.rules(t))); diff != "" {
				t.Errorf("%s: Remove left something, or took too much:\n%s", name, diff)
			}
		}
	})
}

// lines returns rules line by line, sorted by the names of chains, whose order does not matter.
func lines(rules string) []string {
	list := slices.Collect(strings.Lines(rules))
	chain := func(line string) string {
		return strings.Join(strings.Fields(line)[:min(4, len(strings.Fields(line)))], " ")
	}
	slices.SortStableFunc(list, func(a, b string) int { return strings.Compare(chain(a), chain(b)) })
	return list
}

// TestStrangers has another program's chain lead into the owner's, which therefore stays.
func TestStrangers(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, flavour iptables.Flavour) {
		t.Helper()
		ns := newPod(t)
		dp := dataplane(t, iptables.Options{Flavour: flavour})
		if err := dp.Apply(t.Context(), ns.Netns, tamperPlan(t)); err != nil {
			t.Fatal(err)
		}
		ns.load(t, flavour, "*nat\n-N FOREIGN\n-A FOREIGN -j MESH-TEST_CALLED\nCOMMIT\n")
		before := ns.rules(t)
		if err := dp.Remove(t.Context(), ns.Netns, "mesh-test"); err == nil || !strings.Contains(err.Error(), "-A FOREIGN -j MESH-TEST_CALLED") {
			t.Errorf("got %v, want the rule that is in the way", err)
		}
		if diff := cmp.Diff(before, ns.rules(t)); diff != "" {
			t.Errorf("something changed (-before +after):\n%s", diff)
		}
	})
}

// TestFlavours checks that the flavour follows what the namespace has.
func TestFlavours(t *testing.T) {
	t.Parallel()
	plan := capture(t, 15001, nothingMore)
	const others = "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n"
	for _, test := range []struct {
		name   string
		have   []iptables.Flavour // of other programs' rules
		own    iptables.Flavour   // of the owner's older rules
		forced iptables.Flavour
		want   string
	}{
		{name: "nothing", want: "nft"},
		{name: "others, legacy", have: []iptables.Flavour{iptables.Legacy}, want: "legacy"},
		{name: "others, nft", have: []iptables.Flavour{iptables.NFT}, want: "nft"},
		{name: "others, both", have: []iptables.Flavour{iptables.NFT, iptables.Legacy}, want: "nft"},
		{name: "own, legacy", have: []iptables.Flavour{iptables.NFT}, own: iptables.Legacy, want: "legacy"},
		{name: "forced", have: []iptables.Flavour{iptables.Legacy}, forced: iptables.NFT, want: "nft"},
		{name: "forced away from nft", own: iptables.NFT, forced: iptables.Legacy, want: "legacy"},
		{name: "forced away from legacy", own: iptables.Legacy, forced: iptables.NFT, want: "nft"},
	} {
		ns := newPod(t)
		for _, flavour := range test.have {
			ns.load(t, flavour, others)
		}
		if test.own != "" {
			if err := dataplane(t, iptables.Options{Flavour: test.own}).Apply(t.Context(), ns.Netns, tamperPlan(t)); err != nil {
				t.Fatal(err)
			}
		}
		dp := dataplane(t, iptables.Options{Flavour: test.forced})
		if err := dp.Apply(t.Context(), ns.Netns, plan); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		programs := map[string]bool{}
		for line := range strings.Lines(ns.rules(t)) {
			if strings.Contains(line, "-A MESH-TEST_") {
				programs[strings.Split(line, "-")[1]] = true
			}
		}
		if len(programs) != 1 || !programs[test.want] {
			t.Errorf("%s: the owner's rules are in %v, want %s:\n%s", test.name, programs, test.want, ns.rules(t))
		}
		if err := dp.Remove(t.Context(), ns.Netns, plan.Owner); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if left := ns.rules(t); strings.Contains(left, "MESH-TEST") || strings.Count(left, "ACCEPT") != len(test.have) {
			t.Errorf("%s: left behind:\n%s", test.name, left)
		}
	}
}

// TestMissingPrograms has a machine without one flavour, or both.
func TestMissingPrograms(t *testing.T) {
	t.Parallel()
	absent := map[string][]string{}
	for _, name := range []string{"iptables-nft-restore", "ip6tables-nft-restore", "iptables-nft-save", "ip6tables-nft-save"} {
		absent[name] = []string{"/nonexistent/" + name}
	}
	ns := newPod(t)
	plan := capture(t, 15001, nothingMore)
	if err := dataplane(t, iptables.Options{Flavour: iptables.NFT, Programs: absent}).Apply(t.Context(), ns.Netns, plan); err == nil ||
		!strings.Contains(err.Error(), "/nonexistent/iptables-nft-restore") || !strings.Contains(err.Error(), "install iptables") {
		t.Errorf("forced: got %v, want the path of the program, and what to install", err)
	}
	if err := dataplane(t, iptables.Options{Programs: absent}).Apply(t.Context(), ns.Netns, plan); err != nil {
		t.Error(err)
	}
	if rules := ns.rules(t); !strings.Contains(rules, "iptables-legacy-save nat -A MESH-TEST_OUTPUT") {
		t.Errorf("without the programs of nft:\n%s", rules)
	}
}
