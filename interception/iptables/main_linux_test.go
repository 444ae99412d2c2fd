// SPDX-License-Identifier: Apache-2.0

package iptables_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }

// pod is a fresh network namespace, as the dataplane and as programs see it.
type pod struct{ *sandboxtest.Pod }

func newPod(t testing.TB) *pod {
	t.Helper()
	return &pod{sandboxtest.NewPod(t)}
}

func (p *pod) load(t testing.TB, flavour iptables.Flavour, text string) {
	t.Helper()
	p.Run(t, text, "iptables-"+string(flavour)+"-restore", "--noflush")
}

// rules returns the rules and non-empty chains of both families, of all flavours by default.
func (p *pod) rules(t testing.TB, flavours ...iptables.Flavour) string {
	t.Helper()
	if flavours == nil {
		flavours = []iptables.Flavour{iptables.Legacy, iptables.NFT}
	}
	var programs []string
	for _, flavour := range flavours {
		programs = append(programs, "iptables-"+string(flavour)+"-save", "ip6tables-"+string(flavour)+"-save")
	}
	var b strings.Builder
	for _, program := range programs {
		table := ""
		for line := range strings.Lines(p.Run(t, "", program)) {
			switch {
			case line[0] == '*':
				table = program + " " + strings.TrimSpace(line[1:]) + " "
			case line[0] == '-' || line[0] == ':' && strings.Contains(line, " - "):
				b.WriteString(table + line)
			}
		}
	}
	return b.String()
}

// counted counts the programs that it runs, by the end of the program's name.
type counted struct {
	iptables.Runner
	mu       sync.Mutex
	commands []iptables.Command
}

// Run is [iptables.Runner.Run].
func (c *counted) Run(ctx context.Context, command iptables.Command) (iptables.Output, error) {
	c.mu.Lock()
	c.commands = append(c.commands, command)
	c.mu.Unlock()
	return c.Runner.Run(ctx, command)
}

// programs returns the names of the programs that ran since the last call.
func (c *counted) programs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var names []string
	for _, command := range c.commands {
		names = append(names, command.Args[0])
	}
	c.commands = nil
	return names
}

func dataplane(t testing.TB, o iptables.Options) *iptables.Dataplane {
	t.Helper()
	d, err := iptables.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func flavours(t *testing.T, test func(t *testing.T, flavour iptables.Flavour)) {
	t.Helper()
	for _, flavour := range []iptables.Flavour{iptables.Legacy, iptables.NFT} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			test(t, flavour)
		})
	}
}

func build(t testing.TB, owner interception.Owner, fill func(*interception.Builder)) *interception.Plan {
	t.Helper()
	plan, err := interception.Build(owner, fill)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

type changed struct {
	change func(iptables.Command) iptables.Command
}

// Run is [iptables.Runner.Run].
func (c changed) Run(ctx context.Context, command iptables.Command) (iptables.Output, error) {
	return iptables.DefaultRunner().Run(ctx, c.change(command))
}
