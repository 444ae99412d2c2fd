// SPDX-License-Identifier: Apache-2.0

package rendercheck_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/render"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }

// families are the families that a text is for.
func families() []interception.Family {
	return []interception.Family{interception.IPv4, interception.IPv6}
}

// flavours are the implementations of iptables.
func flavours() []string { return []string{"legacy", "nft"} }

// newNamespace creates a network namespace.
func newNamespace(t testing.TB) *sandbox.Namespace {
	t.Helper()
	namespace, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespace.Close() })
	return namespace
}

// tool is a program of one flavour of iptables, for one family.
type tool struct {
	namespace *sandbox.Namespace
	flavour   string
	family    interception.Family
}

// run runs one of the tool's programs, "restore" or "save".
func (x tool) run(t testing.TB, program, input string, args ...string) (string, error) {
	t.Helper()
	name := "iptables"
	if x.family == interception.IPv6 {
		name = "ip6tables"
	}
	var out, errs bytes.Buffer
	err := x.namespace.Do(func() error {
		cmd := exec.CommandContext(t.Context(), name+"-"+x.flavour+"-"+program, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
		// The machine has one lock for the legacy tools, but the namespaces share nothing.
		cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+filepath.Join(t.TempDir(), "xtables.lock"))
		return cmd.Run()
	})
	if err != nil {
		return "", fmt.Errorf("%s-%s-%s: %w\n%s", name, x.flavour, program, err, errs.String())
	}
	return out.String(), nil
}

// load loads a text that the tool must accept.
func (x tool) load(t testing.TB, text string) {
	t.Helper()
	for _, args := range [][]string{{"--noflush", "--test"}, {"--noflush"}} {
		if _, err := x.run(t, "restore", text, args...); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
}

// rules returns the rules that the tool lists, by table, chains in the order of their names.
func (x tool) rules(t testing.TB) []string {
	t.Helper()
	text, err := x.run(t, "save", "")
	if err != nil {
		t.Fatal(err)
	}
	return rules(text)
}

// rules returns the rules in a text, prefixed with their tables' names: sorted by table and chain,
// in the order of the text within a chain.
func rules(text string) []string {
	var list []string
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line
		case strings.HasPrefix(line, "-A "):
			// "--zone 0" is not listed: it is the default zone.
			list = append(list, table+" "+strings.TrimSuffix(line, " --zone 0"))
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return strings.Compare(chain(a), chain(b)) })
	return list
}

// chain returns table and chain of a line of [rules].
func chain(line string) string {
	words := strings.Fields(line)
	return words[0] + " " + words[2]
}

// text renders a plan that must be supported.
func text(t testing.TB, plan *interception.Plan, family interception.Family) string {
	t.Helper()
	text, err := render.IPTablesRestore(plan, family)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// build builds a plan that must be valid.
func build(t testing.TB, fill func(*interception.Builder)) *interception.Plan {
	t.Helper()
	plan, err := interception.Build("mesh-test", fill)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}
