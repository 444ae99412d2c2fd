// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// vpn is a table as a program that tunnels a pod's traffic has it: two chains before the mesh's
// rules, one of which sets a mark of the mesh by another chain, one that only accepts, and chains
// that come later.
const vpn = `table inet vpn {
	chain first { type filter hook prerouting priority -350; jump marks; udp dport 9 drop; }
	chain marks { tcp dport 9 meta mark set 0x539; }
	chain out { type nat hook output priority -150; tcp dport 9 redirect to :10; }
	chain harmless { type filter hook output priority -400; accept; }
	chain late { type filter hook prerouting priority 300; udp dport 9 drop; }
	chain input { type filter hook input priority 0; udp dport 9 drop; }
}`

// TestE31ForeignChainsAreShown has a program with rules of its own in an enrolled pod. The status
// names those that come before the agent's and what they do, before and after a restart of the
// agent, which leaves its own rules as they are (E20, E31).
func TestE31ForeignChainsAreShown(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.dataplane, n.options.Dataplane, n.options.Sets, n.options.TakeOver = dataplane, dataplane, dataplane, readers(t)
			applied, observe := new(atomic.Int32), n.options.Observe
			n.options.Observe = func(p Pod) {
				if p.Step == ambient.StepApply {
					applied.Add(1)
				}
				observe(p)
			}
			pod := n.pod("a")
			first, end := n.run()
			n.proxy()
			n.feed <- told(object("a"))
			n.awaitSelection(first, "a")
			if got := n.foreign(first); len(got) > 0 {
				t.Errorf("without other programs the agent names %+v", got)
			}
			sandboxtest.Run(t, pod.File(), vpn, "nft", "-f", "-")
			sandboxtest.Run(t, pod.File(), "", "iptables-legacy", "-t", "mangle", "-A", "PREROUTING", "-p", "udp", "--dport", "9", "-j", "MARK", "--set-mark", "7")
			want := []string{
				"inet vpn/first (hook prerouting, priority -350): 2 rules, marks 1",
				"inet vpn/out (hook output, priority -150): 1 rules, marks 0",
				"legacy ip mangle/PREROUTING (hook prerouting, priority -150): 1 rules, marks 1",
			}
			if diff := cmp.Diff(want, n.foreign(first)); diff != "" {
				t.Errorf("other programs' chains (-want +got):\n%s", diff)
			}
			n.connect(pod, 1)
			end()
			second, _ := n.run()
			n.feed <- told(object("a"))
			n.awaitSelection(second, "a")
			if diff := cmp.Diff(want, n.foreign(second)); diff != "" {
				t.Errorf("after a restart (-want +got):\n%s", diff)
			}
			n.connect(pod, 1)
			if got := applied.Load(); got != 1 {
				t.Errorf("the plan was applied %d times, want once", got)
			}
		})
	}
}

// foreign returns what an agent says of other programs' chains in pod a.
func (n *node) foreign(a *Agent) (texts []string) {
	n.t.Helper()
	chains, err := a.Foreign(n.t.Context(), "a")
	if err != nil {
		n.t.Error(err)
	}
	for _, c := range chains {
		texts = append(texts, fmt.Sprintf("%s/%s (hook %s, priority %d): %d rules, marks %d", c.Table, c.Name, c.Hook, c.Priority, len(c.Rules), len(c.Marks)))
	}
	slices.Sort(texts)
	return texts
}

// TestForeignAnswers asks about a pod that the agent does not know, about one that it is at work
// on, and about one that leaves meanwhile.
func TestForeignAnswers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.TakeOver = readers(t)
	n.pod("a")
	a, _ := n.run()
	if got, err := a.Foreign(t.Context(), "unknown"); got != nil || err != nil {
		t.Errorf("an unknown pod: %v, %v", got, err)
	}
	n.feed <- told(object("a")) // no proxy: the worker waits for an acknowledgement
	n.awaitPods(a, "that it tells the proxy", func(pods []Pod) bool { return len(pods) == 1 && pods[0].Step == ambient.StepTell })
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := a.Foreign(ctx, "a"); err != nil && (!errors.Is(err, enough) || !strings.Contains(err.Error(), "pod a")) {
		t.Errorf("with a context that has ended: %v", err)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := a.Foreign(t.Context(), "a")
		asked <- err
	}()
	n.feed <- ambient.Change{Gone: []string{"a"}}
	n.awaitRest(a)
	if err := <-asked; err != nil {
		t.Errorf("a pod that leaves: %v", err)
	}
}

// TestPrecedeIsBounded has a chain with more rules than are told.
func TestPrecedeIsBounded(t *testing.T) {
	t.Parallel()
	plan := enrolledRecord(t).Plan
	chain := interception.ForeignChain{Table: "inet vpn", Name: "first", Hook: "prerouting", Priority: -350, Policy: interception.Accept{}}
	for range 1000 {
		chain.Rules = append(chain.Rules, interception.Rule{Match: interception.Match{L4: interception.UDP()}, Action: interception.Drop{}})
	}
	got := precede(plan, []interception.ForeignChain{chain}, ambient.IstioNumbers())
	if len(got) != 1 || len(got[0].Rules) != mostRules+1 || got[0].Rules[mostRules] != "and 900 more" {
		t.Errorf("got %+v", got)
	}
}
