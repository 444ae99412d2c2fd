// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"os"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// dump lists what the host has: links, addresses, rules, routes, sets and settings.
func (n *node) dump() string {
	n.t.Helper()
	return n.dumpOf(n.made.Host.Netns.File())
}

// saveAgain runs a program that lists rules, again if it fails: it does when a set of a rule goes
// while it works.
const saveAgain = `for again in 1 2 3 4 5 6 7 8 9; do out=$("$0") && printf '%s\n' "$out" && exit; done; exec "$0"`

// dumpOf lists what a namespace has.
func (n *node) dumpOf(file *os.File) string {
	n.t.Helper()
	run := func(command ...string) string {
		n.t.Helper()
		return sandboxtest.Run(n.t, file, "", command...)
	}
	var all string
	for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save"} {
		for line := range strings.Lines(run("sh", "-c", saveAgain, program)) {
			if strings.HasPrefix(line, "-A") || strings.HasPrefix(line, "-N") {
				all += program + " " + line
			}
		}
	}
	if strings.Contains(run("nft", "list", "tables"), "inet "+string(owner)) {
		all += run("nft", "--stateless", "list", "table", "inet", string(owner))
	}
	for _, family := range []string{"-4", "-6"} {
		all += run("ip", family, "rule")
		for line := range strings.Lines(run("ip", family, "route", "show", "table", "all")) {
			if !strings.Contains(line, " proto kernel ") { // which come and go by themselves
				all += line
			}
		}
	}
	var links []string // in no order: those that are made again come last
	for line := range strings.Lines(run("ip", "-o", "address", "show", "scope", "global")) {
		links = append(links, strings.Join(strings.Fields(line)[1:4], " "))
	}
	for line := range strings.Lines(run("ip", "-br", "link")) {
		name, _, _ := strings.Cut(line, "@")
		name, _, _ = strings.Cut(name, " ")
		links = append(links, "link "+name)
	}
	slices.Sort(links)
	return all + strings.Join(links, "\n") + "\n" + run("sysctl", "-a", "-r", `net\.ipv4\.conf\..*\.rp_filter`)
}
