// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

const soakReport = "../../bin/e2e/soak.txt"

func (d *day) report() {
	d.t.Helper()
	var text strings.Builder
	say := func(format string, values ...any) { fmt.Fprintf(&text, format+"\n", values...) }
	result := "passed"
	if d.t.Failed() {
		result = "FAILED"
	}
	say("%s: %v, seed %d, %s", result, time.Since(d.begin).Round(time.Second), d.seed, d.begin.UTC().Format(time.RFC3339))
	mesh, took := 0, []time.Duration{0}
	for _, s := range d.pods.spans {
		if took = append(took, s.made.Sub(s.begin)); s.mesh {
			mesh++
		}
	}
	say("pods: %d started (%d of the mesh), %d stopped, %d left running and compared with their plans; ready in %v (median), %v (max)",
		len(d.pods.spans), mesh, d.pods.stopped, len(d.pods.live), round(median(took)), round(slices.Max(took)))
	say("pods of the mesh that were ready and not captured: %d, all while the list lacked the plugin", len(d.pods.escapes))
	for _, e := range d.pods.escapes {
		say("  %s: repaired in place %v later", e.pod, e.repaired.Round(time.Millisecond))
	}
	say("faults: %d", len(d.wounds))
	kinds := map[string][]time.Duration{}
	for _, w := range d.wounds {
		kinds[w.name] = append(kinds[w.name], w.took)
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		took := kinds[name]
		say("  %-52s %3d  healed in %8v (median), %8v (max)", name, len(took), round(median(took)), round(slices.Max(took)))
	}
	if !d.awaitsRotation {
		say("token rotation by the kubelet: none within less than %v", rotationTakes)
	}
	for _, r := range d.rotations {
		say("token rotation by the kubelet: %s at %s, of a token %v old; in the kubeconfig %v later, by the same process",
			r.node, d.clock(r.at), r.age.Round(time.Second), round(r.taken))
	}
	say("memory and descriptors, means of the first quarter and of the last (those of %s are never killed, and must be flat):", d.steady.Name)
	for _, n := range d.nodes {
		for _, program := range watched() {
			say("  %s %-12s  %s", n.Name, program, growthOf(n.samples[program]))
		}
		say("  %s memory of the daemon's container: %s", n.Name, n.memory)
	}
	if !d.t.Failed() {
		say("left behind: no files, records, network namespaces or processes of the plugin")
	}
	d.t.Log("\n" + text.String())
	if err := os.WriteFile(soakReport, []byte(text.String()), 0o644); err != nil {
		d.t.Error(err)
	}
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
