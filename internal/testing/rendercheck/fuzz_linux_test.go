// SPDX-License-Identifier: Apache-2.0

package rendercheck_test

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// FuzzPlan gives the tools any plan, valid or not. Every renderer refuses an invalid plan with the
// place and the reason. For a valid plan, nft accepts the script, and iptables of each flavour and
// family accepts the text, unless the renderer reports which rule it does not support. The texts
// have every comment whole, and exactly the plan's ports.
func FuzzPlan(f *testing.F) {
	for seed := range 80 {
		f.Add([]byte(strings.Repeat(string(rune('!'+seed)), seed)), uint8(seed))
	}
	// Many source ports excluded by a rule with many destination ports.
	for _, data := range []string{"seed 21", "seed 32", "seed 245", "seed 284", "seed 359"} {
		f.Add([]byte(data), uint8(3))
	}
	namespace := newNamespace(f)
	f.Fuzz(func(t *testing.T, data []byte, which uint8) {
		plan := planOf(data)
		if err := plan.Validate(); err != nil {
			checkInvalid(t, plan, err)
			return
		}
		checkNFT(t, namespace, plan)
		x := tool{namespace, flavours()[which&1], families()[which>>1&1]}
		text, err := render.IPTablesRestore(plan, x.family)
		if err != nil {
			checkUnsupported(t, plan, err)
			return
		}
		if _, err := x.run(t, "restore", string(text), "--noflush", "--test"); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		checkComments(t, plan, string(text), " --comment ")
		checkIPTablesPorts(t, plan, string(text))
	})
}

// checkInvalid checks that a plan is refused with places and reasons by every renderer.
func checkInvalid(t *testing.T, plan *interception.Plan, err error) {
	t.Helper()
	var refused *interception.PlanError
	if !errors.As(err, &refused) || refused.At == "" || refused.Err == nil || refused.Err.Error() == "" {
		t.Errorf("%v: want a PlanError with a place and a reason", err)
	}
	if text, err := render.NFT(plan); !errors.Is(err, interception.ErrPlan) || text != nil {
		t.Errorf("NFT = %q, %v, want ErrPlan", text, err)
	}
	for _, family := range families() {
		if text, err := render.IPTablesRestore(plan, family); !errors.Is(err, interception.ErrPlan) || text != nil {
			t.Errorf("IPTablesRestore = %q, %v, want ErrPlan", text, err)
		}
	}
}

// checkUnsupported checks that an error names the rule or set that cannot be rendered.
func checkUnsupported(t *testing.T, plan *interception.Plan, err error) {
	t.Helper()
	named := strings.Contains(err.Error(), "table ") // too deep, as a whole
	for set := range plan.Sets() {
		named = named || strings.Contains(err.Error(), string(set.Name))
	}
	for _, rule := range plan.Rules() {
		named = named || strings.Contains(err.Error(), string(rule.ID))
	}
	if !errors.Is(err, interception.ErrUnsupported) || !named {
		t.Errorf("error %v, want ErrUnsupported about a rule or a set", err)
	}
}

// checkNFT makes nft and the kernel check the script.
func checkNFT(t *testing.T, namespace *sandbox.Namespace, plan *interception.Plan) {
	t.Helper()
	script, err := render.NFT(plan)
	if err != nil {
		checkUnsupported(t, plan, err)
		return
	}
	var out bytes.Buffer
	if err := namespace.Do(func() error {
		cmd := exec.CommandContext(t.Context(), "nft", "-c", "-f", "-")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(script), &out, &out
		return cmd.Run()
	}); err != nil {
		t.Fatalf("nft: %v\n%s\n%s", err, out.String(), script)
	}
	checkComments(t, plan, string(script), " comment ")
	checkNFTPorts(t, plan, string(script))
}

// checkComments checks that every comment of a text is a whole comment of the plan, and not longer
// than the kernel's tools accept.
func checkComments(t *testing.T, plan *interception.Plan, text, before string) {
	t.Helper()
	known := map[string]bool{}
	for table := range plan.Tables() {
		for _, e := range table.Entries {
			known[e.Comment()] = true
		}
	}
	for _, rule := range plan.Rules() {
		known[rule.Comment()] = true
	}
	for line := range strings.Lines(text) {
		_, comment, found := strings.Cut(line, before)
		if !found || strings.HasPrefix(line, "#") {
			continue
		}
		if comment = strings.Split(comment, `"`)[1]; !known[comment] || len(comment) > 128 {
			t.Errorf("%q is no comment of the plan", comment)
		}
	}
}

// portRules returns the port conditions of rules and entries, by their comments.
func portRules(plan *interception.Plan) map[string]interception.L4 {
	all := map[string]interception.L4{}
	for table := range plan.Tables() {
		for _, e := range table.Entries {
			all[e.Comment()] = e.Match.L4
		}
	}
	for _, rule := range plan.Rules() {
		all[rule.Comment()] = rule.Match.L4
	}
	return all
}

// checkIPTablesPorts reads the ports back. All lines of a rule that lists ports together have them,
// 15 slots to a match. For a rule that excludes ports, each line that excludes any excludes them
// all, or the lines of a chain of exclusions have them all together.
func checkIPTablesPorts(t *testing.T, plan *interception.Plan, text string) {
	t.Helper()
	rules := portRules(plan)
	included := map[string]interception.PortSet{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		_, rest, found := strings.Cut(line, ` --comment "`)
		if !found {
			continue
		}
		comment, _, _ := strings.Cut(rest, `"`)
		for option, condition := range map[string]interception.Condition[interception.PortSet]{
			"--sport": rules[comment].SrcPort(), "--dport": rules[comment].DstPort(),
		} {
			in, out := optionPorts(t, words, option)
			if condition.Negated() && complete(in, condition.Set()) {
				continue // the others, included, which is as well
			}
			if !out.IsEmpty() && (!condition.Negated() || !out.Equal(condition.Set())) || condition.Negated() && !in.IsEmpty() && !sorts(words[1]) {
				t.Fatalf("%s is not what the rule says, %s (negated %t):\n%s", option, condition.Set(), condition.Negated(), line)
			}
			included[option+comment] = included[option+comment].Union(in)
		}
	}
	for key, ports := range included {
		option, comment := key[:len("--sport")], key[len("--sport"):]
		condition := rules[comment].DstPort()
		if option == "--sport" {
			condition = rules[comment].SrcPort()
		}
		if !ports.IsEmpty() && !ports.Equal(condition.Set()) {
			t.Fatalf("%s of %q includes %s, want %s", option, comment, ports, condition.Set())
		}
	}
}

// complete reports whether each port is in exactly one of two sets.
func complete(a, b interception.PortSet) bool {
	count := 0
	for _, r := range slices.Concat(a.Ranges(), b.Ranges()) {
		count += int(r.Last-r.First) + 1
	}
	return a.Union(b).IsAll() && count == 1<<16
}

// sorts reports whether a chain has a number as its name.
func sorts(chain string) bool {
	return strings.Trim(chain[strings.LastIndexByte(chain, '_')+1:], "0123456789") == ""
}

// optionPorts returns the ports that a line includes and excludes.
func optionPorts(t *testing.T, words []string, option string) (in, out interception.PortSet) {
	t.Helper()
	for i, word := range words {
		if strings.TrimSuffix(word, "s") != option {
			continue
		}
		elements := strings.Split(words[i+1], ",")
		slots := len(elements) + strings.Count(words[i+1], ":")
		if slots > 15 && word == option+"s" {
			t.Errorf("%d slots in %s", slots, words[i+1])
		}
		ports := portsOf(t, elements, ":")
		if i > 0 && words[i-1] == "!" {
			out = out.Union(ports)
		} else {
			in = in.Union(ports)
		}
	}
	return in, out
}

// checkNFTPorts reads the ports of each line back.
func checkNFTPorts(t *testing.T, plan *interception.Plan, script string) {
	t.Helper()
	rules := portRules(plan)
	for line := range strings.Lines(script) {
		before, comment, found := strings.Cut(line, ` comment "`)
		l4, known := rules[strings.TrimSuffix(strings.TrimSpace(comment), `"`)]
		if !found || !known {
			continue
		}
		words := strings.Fields(before)
		for option, condition := range map[string]interception.Condition[interception.PortSet]{"sport": l4.SrcPort(), "dport": l4.DstPort()} {
			i := slices.Index(words, option)
			if i < 0 {
				continue
			}
			list := words[i+1:]
			negated := list[0] == "!="
			if negated {
				list = list[1:]
			}
			elements := list[:1]
			if list[0] == "{" {
				elements = strings.Split(strings.Join(list[1:slices.Index(list, "}")], ""), ",")
			}
			if ports := portsOf(t, elements, "-"); negated != condition.Negated() || !ports.Equal(condition.Set()) {
				t.Errorf("%s: negated %t, ports %s, want %t and %s:\n%s", option, negated, ports, condition.Negated(), condition.Set(), line)
			}
		}
	}
}

// portsOf reads ports and ranges.
func portsOf(t *testing.T, elements []string, to string) interception.PortSet {
	t.Helper()
	var all interception.PortSet
	for _, element := range elements {
		first, last, is := strings.Cut(element, to)
		if !is {
			last = first
		}
		all = all.Union(interception.PortRange(port(t, first), port(t, last)))
	}
	return all
}

func port(t *testing.T, text string) interception.Port {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		t.Fatal(fmt.Errorf("port: %w", err))
	}
	return interception.Port(n)
}
