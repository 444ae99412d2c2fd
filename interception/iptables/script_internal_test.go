// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func rules(t *testing.T, text string) ruleset {
	t.Helper()
	l, err := parseListing(text)
	if err != nil {
		t.Fatal(err)
	}
	return l.owned("M_")
}

func wanted(t *testing.T, text string) ruleset {
	t.Helper()
	set, err := planned(text, "M_")
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestScript covers the lines within a table.
func TestScript(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, from, to, want string }{
		{"nothing", "", "", ""},
		{
			"fresh", "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j F\nCOMMIT\n", "*nat\n-N M_A\n-A M_A -j RETURN\n-A OUTPUT -j M_A\n-I OUTPUT 1 -g M_A\nCOMMIT\n",
			"*nat\n:M_A - [0:0]\n-A M_A -j RETURN\n-A OUTPUT -j M_A\n-I OUTPUT 1 -g M_A\nCOMMIT",
		},
		{
			"the same", "*nat\n:OUTPUT ACCEPT [0:0]\n:M_A - [0:0]\n[5:7] -A OUTPUT -j M_A\n[0:0] -A M_A -j RETURN\nCOMMIT\n",
			"*nat\n-N M_A\n-A M_A -j RETURN\n-A OUTPUT -j M_A\nCOMMIT\n", "",
		},
		{
			"another rule", "*nat\n:OUTPUT ACCEPT [0:0]\n:M_A - [0:0]\n-A OUTPUT -j M_A\n-A M_A -j RETURN\nCOMMIT\n",
			"*nat\n-N M_A\n-A M_A -j ACCEPT\n-A OUTPUT -j M_A\nCOMMIT\n", "*nat\n:M_A - [0:0]\n-A M_A -j ACCEPT\nCOMMIT",
		},
		{
			"a chain less", "*nat\n:OUTPUT ACCEPT [0:0]\n:M_A - [0:0]\n:M_B - [0:0]\n-A OUTPUT -j M_B\n-A OUTPUT -j M_A\nCOMMIT\n",
			"*nat\n-N M_A\n-A OUTPUT -j M_A\nCOMMIT\n", "*nat\n-D OUTPUT -j M_B\n-F M_B\n-X M_B\nCOMMIT",
		},
		{
			"a jump twice", "*nat\n:OUTPUT ACCEPT [0:0]\n:M_A - [0:0]\n-A OUTPUT -j M_A\n-A OUTPUT -j F\n-A OUTPUT -j M_A\nCOMMIT\n",
			"*nat\n-N M_A\n-A OUTPUT -j M_A\nCOMMIT\n", "*nat\n-D OUTPUT -j M_A\n-D OUTPUT -j M_A\n-A OUTPUT -j M_A\nCOMMIT",
		},
		{
			"jumps in the wrong order", "*nat\n:OUTPUT ACCEPT [0:0]\n:M_A - [0:0]\n-A OUTPUT -j F\n-A OUTPUT -g M_A\n-A OUTPUT -j G\n-A OUTPUT -j M_A\nCOMMIT\n",
			"*nat\n-N M_A\n-A OUTPUT -j M_A\n-A OUTPUT -g M_A\nCOMMIT\n", "*nat\n-D OUTPUT -j M_A\n-I OUTPUT 2 -j M_A\nCOMMIT",
		},
		{
			"a jump between two", "*nat\n:OUTPUT ACCEPT [0:0]\n:M_A - [0:0]\n-A OUTPUT -j M_A\n-A OUTPUT -j F\n-A OUTPUT -g M_A\nCOMMIT\n",
			"*nat\n-N M_A\n-A OUTPUT -j M_A\n-A OUTPUT -p tcp -j M_A\n-A OUTPUT -g M_A\nCOMMIT\n", "*nat\n-I OUTPUT 2 -p tcp -j M_A\nCOMMIT",
		},
	} {
		got := strings.Join(script(rules(t, test.from), wanted(t, test.to), "M_"), "\n")
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestPlaces puts jumps back to their former places.
func TestPlaces(t *testing.T) {
	t.Parallel()
	before := rules(t, "*nat\n:OUTPUT ACCEPT [0:0]\n:M_A - [0:0]\n-A OUTPUT -j F\n-A OUTPUT -j M_A\n-A OUTPUT -j G\nCOMMIT\n")
	now := rules(t, "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j F\n-A OUTPUT -j G\nCOMMIT\n")
	want := []string{"*nat", ":M_A - [0:0]", "-I OUTPUT 2 -j M_A", "COMMIT"}
	if diff := cmp.Diff(want, script(now, before, "M_")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCommitOrder covers the order of tables, and when a guard is needed.
func TestCommitOrder(t *testing.T) {
	t.Parallel()
	chain := func(table, rule string) string {
		return "*" + table + "\n-N M_A\n-A M_A " + rule + "\n-A OUTPUT -j M_A\nCOMMIT\n"
	}
	for _, test := range []struct {
		name, from, to string
		tables         string
		guarded        bool
	}{
		{"one changes", chain("nat", "-j A"), chain("nat", "-j B"), "nat", false},
		{"one comes, one changes", chain("nat", "-j A"), chain("nat", "-j B") + chain("mangle", "-j C"), "mangle nat", false},
		{"one changes, one goes", chain("nat", "-j A") + chain("mangle", "-j C"), chain("nat", "-j B"), "nat mangle", false},
		{"one comes for another", chain("mangle", "-j A"), chain("nat", "-j B"), "nat mangle", false},
		{"all come", "", chain("nat", "-j A") + chain("raw", "-j A") + chain("filter", "-j A"), "raw nat filter", false},
		{"two change", chain("nat", "-j A") + chain("mangle", "-j A"), chain("nat", "-j B") + chain("mangle", "-j B"), "filter mangle nat filter", true},
		{
			"untracked", chain("nat", "-j A"), chain("nat", "-j B") + chain("raw", "-j CT --notrack"), "filter raw nat filter", true,
		},
		{
			"marks", chain("nat", "-m mark --mark 0x1 -j A"), chain("nat", "-j B") + chain("mangle", "-j MARK --set-xmark 0x1/0x1"),
			"filter mangle nat filter", true,
		},
		{"all come, with marks", "", chain("mangle", "-j MARK --set-xmark 0x1/0x1") + chain("nat", "-m mark --mark 0x1 -j A"), "nat mangle", false},
		{
			"all come, with marks of two", "", chain("mangle", "-m mark --mark 0x1 -j MARK --set-xmark 0x1/0x1") + chain("raw", "-m mark --mark 0x1 -j MARK --set-xmark 0x1/0x1"),
			"filter raw mangle filter", true,
		},
		{"all come, untracked", "", chain("nat", "-j A") + chain("raw", "-j CT --notrack"), "filter raw nat filter", true},
		{"all go, with marks", chain("nat", "-m mark --mark 0x1 -j A") + chain("mangle", "-j MARK --set-xmark 0x1/0x1"), "", "filter mangle nat filter", true},
		{"marks of its own", chain("nat", "-j A"), chain("nat", "-j B") + chain("mangle", "-m mark --mark 0x1 -j MARK --set-xmark 0x1/0x1"), "mangle nat", false},
	} {
		lines := script(wanted(t, test.from), wanted(t, test.to), "M_")
		var tables []string
		for _, line := range lines {
			if name, ok := strings.CutPrefix(line, "*"); ok {
				tables = append(tables, name)
			}
		}
		if got := strings.Join(tables, " "); got != test.tables {
			t.Errorf("%s: got %s, want %s", test.name, got, test.tables)
		}
		text := strings.Join(lines, "\n")
		if test.guarded != strings.Contains(text, ":M_0-GUARD") || test.guarded != strings.HasSuffix(text, "-F M_0-GUARD\n-X M_0-GUARD\nCOMMIT") {
			t.Errorf("%s: guarded is not %t:\n%s", test.name, test.guarded, text)
		}
	}
}

// TestGuardLeft has a killed process's guard: it stays until all rules are in place.
func TestGuardLeft(t *testing.T) {
	t.Parallel()
	guarded := rules(t, "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:M_0-GUARD - [0:0]\n"+
		"-A INPUT -j M_0-GUARD\n-A FORWARD -j M_0-GUARD\n-A OUTPUT -j M_0-GUARD\n-A M_0-GUARD "+guardRule+"\nCOMMIT\n")
	got := strings.Join(script(guarded, wanted(t, "*nat\n-N M_A\n-A OUTPUT -j M_A\nCOMMIT\n"), "M_"), "\n")
	const want = "*nat\n:M_A - [0:0]\n-A OUTPUT -j M_A\nCOMMIT\n*filter\n" +
		"-D INPUT -j M_0-GUARD\n-D FORWARD -j M_0-GUARD\n-D OUTPUT -j M_0-GUARD\n-F M_0-GUARD\n-X M_0-GUARD\nCOMMIT"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFailedLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"iptables-restore: line 5 failed\n": 5,
		"iptables-nft-restore v1.8.9 (nf_tables): \nline 4: RULE_APPEND failed (Invalid argument): rule in chain PREROUTING\n": 4,
		"Couldn't load match `nosuch'\n\nError occurred at line: 3\nTry `iptables-restore -h'":                                 3,
		"online now, no line": 0,
		"":                    0,
	} {
		if got, ok := failedLine(text); got != want || ok != (want > 0) {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

func TestBeyondFiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": false, "passwd: files\ngroup:\tfiles # sss\nhosts: dns\n": false, "passwd: files systemd\n": true, " group: sss files\n": true, "#passwd: sss": false,
	} {
		if got := beyondFiles(text); got != want {
			t.Errorf("%q: got %t", text, got)
		}
	}
}
