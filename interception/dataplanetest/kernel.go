// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Kernel is the [Ground] of dataplanes that work on the kernel of this machine: it makes network namespaces, and looks into them with ip(8),
// nft(8) and, where they are installed, the -save programs of both flavours of iptables. The zero value is ready. On other systems than
// Linux it skips the test.
type Kernel struct {
	// Sysctls are parameters that Dump shows beside those that the cases of [Conformance] set: paths below /proc/sys/net, as in
	// [interception.Sysctl].
	Sysctls []string
}

var _ Ground = Kernel{}

// program runs a program in a namespace, with some input, and returns its output.
type program func(t testing.TB, input string, args ...string) string

// dumpRoutes shows links, addresses, routes and policy rules, without what differs each time and the kernel's own, which comes
// and goes by itself.
func dumpRoutes(t testing.TB, run program) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(run(t, "", "ip", "-o", "link")) {
		words := strings.Fields(line) // index, name, flags
		up := slices.Contains(strings.FieldsFunc(words[2], func(r rune) bool { return strings.ContainsRune("<,>", r) }), "UP")
		fmt.Fprintf(&b, "link %s up %t\n", words[1], up)
	}
	for line := range strings.Lines(run(t, "", "ip", "-o", "-N", "address")) {
		_, address, _ := strings.Cut(line, ": ") // behind the index
		address = strings.ReplaceAll(address, "tentative ", "")
		if !strings.Contains(address, "fe80:") {
			b.WriteString("address " + strings.Join(strings.Fields(address), " ") + "\n")
		}
	}
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(run(t, "", "ip", family, "rule")) {
			b.WriteString("rule " + family + " " + strings.Join(strings.Fields(line), " ") + "\n")
		}
		for line := range strings.Lines(run(t, "", "ip", family, "-N", "route", "show", "table", "all")) {
			if !strings.Contains(line, "fe80:") && !strings.Contains(line+" ", " proto 2 ") {
				b.WriteString("route " + family + " " + strings.Join(strings.Fields(line), " ") + "\n")
			}
		}
	}
	return b.String()
}

// dumpXtables shows the rules and own chains of iptables, chain by chain in the order of their names.
func dumpXtables(t testing.TB, run program, programs []string) string {
	t.Helper()
	var found []string
	for _, name := range programs {
		table := ""
		for line := range strings.Lines(run(t, "", name)) {
			switch {
			case line[0] == '*':
				table = strings.TrimSuffix(name, "-save") + " " + strings.TrimSpace(line[1:]) + " "
			case line[0] == '-':
				found = append(found, table+strings.TrimPrefix(line, "-A "))
			case line[0] == ':' && strings.Contains(line, " - "):
				found = append(found, table+strings.Fields(line[1:])[0]+" is a chain\n")
			}
		}
	}
	// Rules stay in order within their chain: what comes before the fourth word names it.
	slices.SortStableFunc(found, func(x, y string) int {
		return slices.Compare(strings.SplitN(x, " ", 4)[:3], strings.SplitN(y, " ", 4)[:3])
	})
	return strings.Join(found, "")
}

// withoutXtables takes out of a listing of nft the tables that iptables-nft-save shows in its own words.
func withoutXtables(ruleset string) string {
	return strings.Join(slices.DeleteFunc(strings.SplitAfter(ruleset, "\n}\n"), isXtable), "")
}

// isXtable reports whether the listing of a table, with warnings in front of it, is of one that iptables-nft makes.
func isXtable(table string) bool {
	heading, _, _ := strings.Cut(table, " {\n")
	words := strings.Fields(heading)
	return len(words) > 2 && slices.Contains([]string{"ip", "ip6"}, words[len(words)-2]) &&
		slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, words[len(words)-1])
}
