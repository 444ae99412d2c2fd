// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// The limits of BenchmarkNodePlan, in milliseconds at the median, on a host with othersRules rules
// of other programs in the same backend.
const (
	mostNodeApply   = 30.0
	mostNodeObserve = 30.0 // Observe and Diff
	mostNodeEdit    = 2.0  // one address into a set of 10,000
	othersRules     = 5000
)

// planTurns is how often BenchmarkNodePlan takes each step.
const planTurns = 30

// BenchmarkNodePlan applies the plan of a node twice, observes it and compares it, without pods and
// with 10,000 of them, enrols a pod, and removes the plan, on a host with many rules of other
// programs. It prints a table, and fails when a limit is not kept. How long it runs is said by
// planTurns, and not by -benchtime.
func BenchmarkNodePlan(b *testing.B) {
	steps := []string{"apply", "again", "observe", "observe many", "enrol", "remove"}
	rows := [][]string{append([]string{fmt.Sprintf("medians of %d, milliseconds", planTurns)}, steps...)}
	backends := hosts(b)
	for _, name := range []string{"nftables", "iptables nft", "iptables legacy"} {
		took := nodePlanSteps(b, backends[name], name)
		row := []string{name}
		for _, step := range steps {
			row = append(row, fmt.Sprintf("%.2f", took[step]))
		}
		rows = append(rows, row)
		for step, most := range map[string]float64{"apply": mostNodeApply, "observe": mostNodeObserve, "enrol": mostNodeEdit} {
			if took[step] > most {
				b.Errorf("NOT MET: by %s, %s takes %.2f ms, and the limit is %.0f", name, step, took[step], most)
			}
		}
	}
	b.ReportMetric(0, "ns/op") // of the whole, and of no use
	show(aligned(rows))
}

// nodePlanSteps returns the median milliseconds of each step.
func nodePlanSteps(b *testing.B, backend hostBackend, name string) map[string]float64 {
	b.Helper()
	host, pod := sandboxtest.NewPod(b), sandboxtest.NewPod(b)
	addOthers(b, host, name)
	plan, err := ambient.NodePlan(ways()[ambient.WayVeth], ambient.IstioNodeNumbers(), bothFamilies(), "test-ambient")
	if err != nil {
		b.Fatal(err)
	}
	handle := host.With("proxy", pod.Netns)
	took := map[string][]float64{}
	step := func(name string, do func() error) {
		begin := time.Now()
		if err := do(); err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		took[name] = append(took[name], float64(time.Since(begin))/float64(time.Millisecond))
	}
	set, many := ambient.MeshedSet(interception.IPv4), ofMany(10000)
	edit := func(e interception.SetEdit) func() error {
		return func() error { return backend.UpdateSet(b.Context(), handle, plan.Owner, set, e) }
	}
	apply := func() error { return backend.Apply(b.Context(), handle, plan) }
	observe := func() error {
		state, err := backend.Observe(b.Context(), handle, plan.Owner)
		if drifts := interception.Diff(plan, state); err == nil && drifts != nil {
			return fmt.Errorf("drift: %v", drifts)
		}
		return err
	}
	for range planTurns {
		step("apply", apply)
		step("again", apply)
		step("observe", observe)
		step("fill", edit(many))
		step("enrol", edit(interception.SetEdit{Add: map[netip.Addr]string{netip.MustParseAddr("10.244.1.2"): "7c1e"}}))
		step("observe many", observe)
		step("remove", func() error { return backend.Remove(b.Context(), handle, plan.Owner) })
	}
	medians := map[string]float64{}
	for name, all := range took {
		slices.Sort(all)
		medians[name] = all[len(all)/2]
	}
	return medians
}

// ofMany is an edit that adds as many members.
func ofMany(count int) interception.SetEdit {
	members := map[netip.Addr]string{}
	for address := netip.MustParseAddr("10.1.0.1"); len(members) < count; address = address.Next() {
		members[address] = "7c1e"
	}
	return interception.SetEdit{Add: members}
}

// addOthers gives a host the rules of other programs: in chains of ten, one for each of many
// services, as kube-proxy has them.
func addOthers(b *testing.B, host *sandboxtest.Pod, backend string) {
	b.Helper()
	var script strings.Builder
	nft := backend == "nftables"
	if nft {
		script.WriteString("table ip others {\n")
	} else {
		script.WriteString("*nat\n")
	}
	for chain := range othersRules / 10 {
		if nft {
			fmt.Fprintf(&script, "chain service-%d {\n", chain)
		} else {
			fmt.Fprintf(&script, ":SERVICE-%d - [0:0]\n", chain)
		}
		for rule := range 10 {
			if nft {
				fmt.Fprintf(&script, "ip daddr 10.96.%d.%d tcp dport %d counter accept\n", chain/250, chain%250, 8000+rule)
			} else {
				fmt.Fprintf(&script, "-A SERVICE-%d -d 10.96.%d.%d/32 -p tcp -m tcp --dport %d -j ACCEPT\n", chain, chain/250, chain%250, 8000+rule)
			}
		}
		if nft {
			script.WriteString("}\n")
		}
	}
	if nft {
		script.WriteString("}\n")
		host.Run(b, script.String(), "nft", "-f", "-")
	} else {
		script.WriteString("COMMIT\n")
		host.Run(b, script.String(), "iptables-"+strings.TrimPrefix(backend, "iptables ")+"-restore", "--noflush")
	}
}
