// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// Namespace returns a network namespace with the link lo, which is up.
func (Kernel) Namespace(t testing.TB) *interception.Netns {
	t.Helper()
	return sandboxtest.NewPod(t).Netns
}

// Dump returns all links, addresses, routes, policy rules, rules and sets, and the sysctls that the
// cases of [Conformance] set.
func (Kernel) Dump(t testing.TB, ns *interception.Netns) string {
	t.Helper()
	run := inside(ns)
	var b strings.Builder
	b.WriteString(dumpRoutes(t, run))
	if err := namespace.Run(ns.File(), func() error {
		for _, key := range sysctls() {
			value, err := os.ReadFile(filepath.Join("/proc/sys/net", key))
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "sysctl %s = %s\n", key, strings.TrimSpace(string(value)))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ruleset := run(t, "", "nft", "-s", "-n", "list", "ruleset")
	b.WriteString(dumpXtables(t, run, xtablesPrograms(ns, ruleset)))
	if isInstalled("iptables-nft-save") {
		ruleset = withoutXtables(ruleset)
	}
	return b.String() + ruleset
}

// xtablesPrograms returns the installed programs that have something to show: a program of
// iptables-nft if nft lists one of its tables, and a program of iptables-legacy if the kernel names
// a table, because it shows only those.
func xtablesPrograms(ns *interception.Netns, ruleset string) []string {
	var found []string
	for _, family := range []struct{ nft, programs, names string }{
		{"ip", "iptables", "/proc/thread-self/net/ip_tables_names"},
		{"ip6", "ip6tables", "/proc/thread-self/net/ip6_tables_names"},
	} {
		if hasXtable(ruleset, family.nft) {
			found = append(found, family.programs+"-nft-save")
		}
		if hasLegacy(ns, family.names) {
			found = append(found, family.programs+"-legacy-save")
		}
	}
	return slices.DeleteFunc(found, func(name string) bool { return !isInstalled(name) })
}

// hasLegacy reports whether the kernel names a table of iptables-legacy in a namespace. If the
// names cannot be read, it returns true, and the program will report why it cannot list the table.
func hasLegacy(ns *interception.Netns, names string) bool {
	var text []byte
	err := namespace.Run(ns.File(), func() (err error) {
		text, err = os.ReadFile(names)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // the file appears with the first table
		return false
	}
	return err != nil || len(text) > 0
}

func isInstalled(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// inside runs programs in a namespace. A program that fails, fails the test.
func inside(ns *interception.Netns) program {
	return func(t testing.TB, input string, args ...string) string {
		t.Helper()
		return sandboxtest.Run(t, ns.File(), input, args...)
	}
}

// foreignRules belong to another program, in the dataplane's hooks, and in tables with an owner's
// name but another family.
const foreignRules = `
table ip %[1]s {
	chain output { type nat hook output priority -100; tcp dport 8080 redirect to :1; }
}
table ip6 %[1]s {
	set things { type inet_service; elements = { 1, 2 }; }
}
table inet other {
	map ports { type inet_service : verdict; elements = { 1 : accept }; }
	chain hook-nat-output { type nat hook output priority -101; tcp dport 8081 redirect to :1; }
	chain hook-mangle { type filter hook prerouting priority -150; meta mark set 0x77; }
	chain %[1]s { tcp dport vmap @ports; }
}
`

// Occupy adds a link, an address, a route, a policy rule and nft tables, and the addresses, routes,
// policy rules and sysctls that the plan wants.
func (Kernel) Occupy(t testing.TB, ns *interception.Netns, p *interception.Plan) {
	t.Helper()
	run := inside(ns)
	run(t, fmt.Sprintf(foreignRules, p.Owner), "nft", "-f", "-")
	run(t, "", "ip", "link", "add", "foreign0", "type", "veth", "peer", "name", "foreign1")
	run(t, "", "ip", "link", "set", "foreign0", "up")
	run(t, "", "ip", "link", "set", "foreign1", "up")
	run(t, "", "ip", "address", "add", "10.99.0.1/24", "dev", "foreign0")
	run(t, "", "ip", "address", "add", "fd99::1/64", "dev", "foreign0", "nodad")
	for _, family := range []string{"-4", "-6"} {
		run(t, "", "ip", family, "rule", "add", "fwmark", "0x7799", "lookup", "7799", "priority", "7799")
		run(t, "", "ip", family, "route", "add", "local", "default", "dev", "lo", "table", "7799")
	}
	for address := range interception.ObjectsOf[interception.Address](p) {
		if address.Device == "lo" {
			run(t, "", "ip", "address", "add", address.Prefix.String(), "dev", "lo")
		}
	}
	for route := range interception.ObjectsOf[interception.Route](p) {
		if route.Device == "lo" {
			run(t, "", "ip", "route", "add", route.Type.String(), route.Destination.String(), "dev", "lo", "table", fmt.Sprint(route.Table))
		}
	}
	for rule := range interception.ObjectsOf[interception.PolicyRule](p) {
		words := []string{familyOption(rule.Family), "rule", "add", "priority", fmt.Sprint(rule.Priority)}
		words = append(words, selectorWords(rule)...)
		run(t, "", append([]string{"ip"}, append(words, "lookup", tableWord(rule.Table))...)...)
	}
	for sysctl := range interception.ObjectsOf[interception.Sysctl](p) {
		setSysctl(t, ns, sysctl.Key, sysctl.Value)
	}
}

// selectorWords returns the conditions of a policy rule in the words of ip(8).
func selectorWords(r interception.PolicyRule) []string {
	var words []string
	if r.Source.IsValid() {
		words = append(words, "from", r.Source.String())
	}
	if r.Destination.IsValid() {
		words = append(words, "to", r.Destination.String())
	}
	if r.In != "" {
		words = append(words, "iif", string(r.In))
	}
	if !r.Mark.IsEmpty() {
		words = append(words, "fwmark", r.Mark.String())
	}
	return words
}

func tableWord(t interception.RoutingTable) string {
	if t == 0 {
		return "main"
	}
	return fmt.Sprint(t)
}

// familyOption returns the option of ip(8).
func familyOption(f interception.Family) string {
	if f == interception.IPv6 {
		return "-6"
	}
	return "-4"
}

func setSysctl(t testing.TB, ns *interception.Netns, key string, value int) {
	t.Helper()
	if err := namespace.Run(ns.File(), func() error {
		return os.WriteFile(filepath.Join("/proc/sys/net", key), fmt.Append(nil, value), 0)
	}); err != nil {
		t.Fatal(err)
	}
}

// edits change what every dataplane puts into the same place of the kernel: all but the rules.
func (Kernel) edits(c Case) []edit {
	var edits []edit
	gone := func(name, at string, id interception.RuleID, do func(t testing.TB, ns *interception.Netns)) {
		edits = append(edits, edit{name + " gone", do, interception.Drift{Kind: interception.DriftMissing, At: at, ID: id}})
	}
	command := func(args ...string) func(testing.TB, *interception.Netns) {
		return func(t testing.TB, ns *interception.Netns) {
			t.Helper()
			inside(ns)(t, "", append([]string{"ip"}, args...)...)
		}
	}
	for _, object := range c.Plan.Objects {
		switch o := object.(type) {
		case interception.Address:
			gone("address", "addresses", o.ID, command("address", "del", o.Prefix.String(), "dev", string(o.Device)))
		case interception.Route:
			gone("route", "routes", o.ID,
				command("route", "del", o.Type.String(), o.Destination.String(), "dev", string(o.Device), "table", fmt.Sprint(o.Table)))
		case interception.PolicyRule:
			gone("policy rule", "policy rules", o.ID,
				command(familyOption(o.Family), "rule", "del", "priority", fmt.Sprint(o.Priority)))
		}
	}
	return edits
}
