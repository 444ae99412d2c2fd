// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Kernel is the [Ground] of dataplanes that work on the kernel of this machine: it creates network
// namespaces, and inspects them with ip(8), nft(8) and, where they are installed, the -save
// programs of both flavours of iptables. On systems other than Linux it skips the test.
type Kernel struct{}

var _ Ground = Kernel{}

// program runs a program in a namespace, with some input, and returns its output.
type program func(t testing.TB, input string, args ...string) string

// dumpRoutes shows links, addresses, routes and policy rules, without values that differ each time
// and the kernel's own entries, which come and go. One program lists all of a family.
func dumpRoutes(t testing.TB, run program) string {
	t.Helper()
	const ofFamily = "address\nrule\nroute show table all\n"
	var b strings.Builder
	for _, list := range [][2]string{{"-4", "link\n" + ofFamily}, {"-6", ofFamily}} {
		family, commands := list[0], list[1]
		for line := range strings.Lines(run(t, commands, "ip", family, "-o", "-N", "-batch", "-")) {
			if shown := networkLine(family, line); shown != "" {
				b.WriteString(shown + "\n")
			}
		}
	}
	return b.String()
}

// networkLine returns what to show of a line of ip(8); "" for entries of the kernel that come and
// go.
func networkLine(family, line string) string {
	words := strings.Fields(line)
	if len(words) < 3 {
		return "" // an empty line between the listings
	}
	what, _, _ := strings.Cut(line, "\\") // a multipath route has its next hops after it
	numbered, linkLocal := strings.HasSuffix(words[0], ":"), strings.Contains(what, "fe80:")
	switch {
	case strings.Contains(line, ":\t"): // priority, rule
		return "rule " + family + " " + strings.Join(words, " ")
	case numbered && words[2][0] == '<': // index, name, flags
		up := slices.Contains(strings.FieldsFunc(words[2], func(r rune) bool { return strings.ContainsRune("<,>", r) }), "UP")
		return fmt.Sprintf("link %s up %t", words[1], up)
	case linkLocal:
		return ""
	case numbered && (words[2] == "inet" || words[2] == "inet6"): // index, link, family
		words = slices.DeleteFunc(words[1:], func(word string) bool { return word == "tentative" })
		return "address " + strings.Join(words, " ")
	case strings.Contains(line+" ", " proto 2 "):
		return ""
	default:
		return "route " + family + " " + strings.Join(words, " ")
	}
}

// dumpXtables shows the rules and own chains of iptables, chain by chain in the order of their
// names.
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
	// Rules stay in order within their chain, which the first three words name.
	slices.SortStableFunc(found, func(x, y string) int {
		return slices.Compare(strings.SplitN(x, " ", 4)[:3], strings.SplitN(y, " ", 4)[:3])
	})
	return strings.Join(found, "")
}

// withoutXtables removes from a listing of nft the tables that iptables-nft-save shows in its own
// form.
func withoutXtables(ruleset string) string {
	return strings.Join(slices.DeleteFunc(tables(ruleset), func(table string) bool { return xtableFamily(table) != "" }), "")
}

// hasXtable reports whether a listing of nft has a table that iptables-nft-save, or
// ip6tables-nft-save for the family ip6, shows.
func hasXtable(ruleset, family string) bool {
	return slices.ContainsFunc(tables(ruleset), func(table string) bool { return xtableFamily(table) == family })
}

// tables returns the listings of nft's tables, each with the warnings before it.
func tables(ruleset string) []string { return strings.SplitAfter(ruleset, "\n}\n") }

// xtableFamily returns the family of a table of iptables-nft, "ip" or "ip6"; "" for any other
// table.
func xtableFamily(table string) string {
	heading, _, _ := strings.Cut(table, " {\n")
	words := strings.Fields(heading)
	if len(words) < 3 {
		return ""
	}
	family, name := words[len(words)-2], words[len(words)-1]
	if !slices.Contains([]string{"ip", "ip6"}, family) || !slices.Contains([]string{"raw", "mangle", "nat", "filter", "security"}, name) {
		return ""
	}
	return family
}
