// SPDX-License-Identifier: Apache-2.0

package rendercheck_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/golden"
	"github.com/meshcni/meshcni/internal/testing/sample"
)

// check loads a plan's texts with every tool, and compares the rules with what the tools list.
func check(t *testing.T, plan *interception.Plan) {
	t.Helper()
	for _, flavour := range flavours() {
		namespace := newNamespace(t)
		for _, family := range families() {
			x := tool{namespace, flavour, family}
			written := text(t, plan, family)
			x.load(t, written)
			if diff := cmp.Diff(rules(written), x.rules(t)); diff != "" {
				t.Errorf("%s %s lists other rules than it loaded (-text +listing):\n%s", flavour, family, diff)
			}
		}
	}
}

func TestGoldens(t *testing.T) {
	t.Parallel()
	for _, c := range goldens(t, "../../../interception/sidecar/testdata") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			plan, _, err := c.Plan()
			if err != nil {
				t.Fatal(err)
			}
			check(t, plan)
		})
	}
}

// TestGoldensOfLargeIDs does the same where the sandbox has the ids. In an ordinary user's sandbox
// the kernel has to refuse them.
func TestGoldensOfLargeIDs(t *testing.T) {
	t.Parallel()
	for _, c := range goldens(t, filepath.Join("../../../interception/sidecar/testdata", golden.LargeIDs)) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			plan, _, err := c.Plan()
			if err != nil {
				t.Fatal(err)
			}
			checkNFT(t, newNamespace(t), plan)
			if id := unmapped(t, plan); id == 0 {
				check(t, plan)
			} else {
				checkRefused(t, plan, id)
			}
		})
	}
}

func goldens(t *testing.T, folder string) []golden.Case {
	t.Helper()
	cases, err := golden.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return cases
}

// unmapped returns a user of the plan that the sandbox of an ordinary user does not have; 0 if it
// has all.
func unmapped(t *testing.T, plan *interception.Plan) interception.UID {
	t.Helper()
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	var most interception.UID
	for line := range strings.Lines(string(text)) {
		var first, outside, count interception.UID
		if _, err := fmt.Sscan(line, &first, &outside, &count); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		most = max(most, first+count-1)
	}
	for _, rule := range plan.Rules() {
		for _, r := range rule.Match.UID.Set().Ranges() {
			if r.Last > most {
				return r.Last
			}
		}
	}
	return 0
}

// checkRefused checks that the kernel rejects every text for an id that does not exist.
func checkRefused(t *testing.T, plan *interception.Plan, id interception.UID) {
	t.Helper()
	for _, flavour := range flavours() {
		for _, family := range families() {
			written := text(t, plan, family)
			if _, err := (tool{newNamespace(t), flavour, family}).run(t, "restore", written, "--noflush"); err == nil {
				t.Errorf("%s %s: a namespace without the user %d takes\n%s", flavour, family, id, written)
			}
		}
	}
}

// TestLoadedTwice shows that a second load fails and repeats nothing.
func TestLoadedTwice(t *testing.T) {
	t.Parallel()
	plan := build(t, func(b *interception.Builder) {
		b.Raw("output").Entry(interception.Output, interception.Match{}, "an entry")
		b.NAT("output").Entry(interception.Output, interception.Match{}, "an entry")
	})
	for _, flavour := range flavours() {
		x := tool{newNamespace(t), flavour, interception.IPv4}
		written := text(t, plan, x.family)
		x.load(t, written)
		before := x.rules(t)
		if _, err := x.run(t, "restore", written, "--noflush"); err == nil {
			t.Errorf("%s loads the text twice", flavour)
		}
		if diff := cmp.Diff(before, x.rules(t)); diff != "" || len(before) != 2 {
			t.Errorf("%s: after the second load (-before +after):\n%s", flavour, diff)
		}
	}
}

// TestEntriesInOrder loads jumps before foreign ones in a hook, and after them in another.
func TestEntriesInOrder(t *testing.T) {
	t.Parallel()
	plan := build(t, func(b *interception.Builder) {
		for _, name := range []interception.ChainName{"last", "first", "second", "third", "fourth"} {
			b.NAT(name).Entry(interception.Output, interception.Match{}, "an entry")
		}
		b.NAT("other").EntryAt(interception.Prerouting, 7, interception.Match{}, "an entry")
	})
	for table := range plan.Tables() {
		for i, offset := range []int32{7, -9, -5, -5, 0} {
			table.Entries[i].Offset = offset
		}
	}
	for _, flavour := range flavours() {
		x := tool{newNamespace(t), flavour, interception.IPv6}
		x.load(t, "*nat\n-N FOREIGN\n-A PREROUTING -j FOREIGN\n-A OUTPUT -j FOREIGN\nCOMMIT\n")
		x.load(t, text(t, plan, x.family))
		var order []string
		for _, rule := range x.rules(t) {
			words := strings.Fields(rule)
			order = append(order, words[len(words)-1])
		}
		want := []string{
			"MESH-TEST_FIRST", "MESH-TEST_SECOND", "MESH-TEST_THIRD", "MESH-TEST_FOURTH", "MESH-TEST_LAST", "FOREIGN",
			"FOREIGN", "MESH-TEST_OTHER",
		}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("%s (-want +got):\n%s", flavour, diff)
		}
	}
}

// TestAddresses loads addresses that inet_ntop(3) writes in a special form.
func TestAddresses(t *testing.T) {
	t.Parallel()
	check(t, build(t, func(b *interception.Builder) {
		chain := b.NAT("output")
		chain.Entry(interception.Output, interception.Match{}, "an entry")
		for i, address := range []string{
			"::", "::1", "::ffff", "::7f00:35", "::1:0", "::1:0:0", "::ffff:0:1", "::1:ffff:0:1", "1:0:0:2::", "1::2:0:0:0",
		} {
			addr := netip.MustParseAddr(address)
			match := interception.Match{Src: interception.Is(interception.Prefixes(netip.PrefixFrom(addr, 128))), L4: interception.TCP()}
			chain.Do(interception.RuleID(fmt.Sprintf("from.r%d", i)), match, interception.Return{}, "a source")
			if !addr.IsUnspecified() && !addr.Is4In6() {
				chain.Do(interception.RuleID(fmt.Sprintf("to.r%d", i)), match, interception.DNATTo{Addr: addr, Port: 80}, "a destination")
			}
		}
	}))
}

// TestDeepest loads chains that call each other as deep as Build accepts.
func TestDeepest(t *testing.T) {
	t.Parallel()
	check(t, build(t, func(b *interception.Builder) {
		chain := b.NAT("c1")
		chain.Entry(interception.Output, interception.Match{}, "an entry")
		for i := 2; i <= 15; i++ {
			next := b.NAT(interception.ChainName(fmt.Sprintf("c%d", i)))
			chain.Call(interception.RuleID(fmt.Sprintf("call.c%d", i)), interception.Match{}, next, "a call")
			chain = next
		}
	}))
}

// mostRules is the maximum number of rules in a table that iptables-nft accepts from an ordinary
// user: without privileges outside of the sandbox it cannot raise the limit of its socket, and a
// few hundred rules exceed it.
const mostRules = 150

// TestRandomPlans loads random plans.
func TestRandomPlans(t *testing.T) {
	t.Parallel()
	plans := 0
	for seed := uint64(0); plans < 25; seed++ {
		plan := sample.Rules(sample.Seeded(seed), "mesh-test")
		if largestTable(t, plan) > mostRules {
			continue
		}
		plans++
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			check(t, plan)
		})
	}
}

// largestTable returns the number of rules in the largest table of either family.
func largestTable(t *testing.T, plan *interception.Plan) (most int) {
	t.Helper()
	for _, family := range families() {
		for _, table := range strings.Split(text(t, plan, family), "\nCOMMIT") {
			most = max(most, strings.Count(table, "\n-A "))
		}
	}
	return most
}
