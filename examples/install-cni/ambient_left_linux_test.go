// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

// capture leaves the files of an agent of ambient mode on the node: records of two pods, or the
// file of the node's form.
func (n *testNode) capture(onNode bool) (remove func()) {
	n.t.Helper()
	records := filepath.Join(n.runDir, "ambient")
	if err := os.MkdirAll(records, 0o700); err != nil {
		n.t.Fatal(err)
	}
	if onNode {
		n.write(n.runDir, "ambient.node.json", "{}", 0o600)
		return func() { n.remove(n.runDir, "ambient.node.json") }
	}
	for _, name := range []string{"ambient@7f0b@pod.json", "ambient@8a1c@pod.json"} {
		n.write(records, name, "{}", 0o600)
	}
	return func() {
		if err := os.RemoveAll(records); err != nil {
			n.t.Fatal(err)
		}
	}
}

// TestPodsThatAmbientModeHasLeft has a daemon without ambient mode where an earlier one has
// captured pods: it says so until they are gone, and the node is ready.
func TestPodsThatAmbientModeHasLeft(t *testing.T) {
	t.Parallel()
	for onNode, want := range map[bool]string{
		false: "pods still captured in their own namespaces: 2", true: "ambient.node.json exists: the node's namespace still captures pods",
	} {
		n := newReadyNode(t)
		n.env["MONITORING_PORT"] = "15014"
		remove := n.capture(onNode)
		p := n.startReady()
		p.waitLine("level=WARN", "ambient mode is off, and has left pods captured", want, "ambient withdraw --all")
		if status, parts := p.verbose(); status != http.StatusOK || !strings.Contains(parts[leftPartName], want) {
			t.Errorf("status %d: %q, want %s", status, parts[leftPartName], want)
		}
		p.wantMetrics(`meshcni_part_ready{part="ambient-left"} 0`)
		remove()
		if _, parts := p.verbose(); parts[leftPartName] != "" {
			t.Errorf("without any: %q", parts[leftPartName])
		}
		p.wantMetrics(`meshcni_part_ready{part="ambient-left"} 1`)
		p.end()
	}
}

// TestUninstallLeavesPodsCaptured: without a daemon nothing takes pods out of the mesh, so that the
// uninstall is not done.
func TestUninstallLeavesPodsCaptured(t *testing.T) {
	t.Parallel()
	for onNode, want := range map[bool]string{
		false: "captured in their own namespaces: 2: restart the pods", true: "rules, sets and links stay until the node is rebooted",
	} {
		n := newReadyNode(t)
		n.startReady().end()
		remove := n.capture(onNode)
		code, output := n.uninstall("--dry-run")
		if code != exitOK || !strings.Contains(output, want) {
			t.Errorf("a dry run: exit code %d:\n%s", code, output)
		}
		code, output = n.uninstall()
		if code != exitFailure || !strings.Contains(output, "ambient        failed     pods are still in the mesh: ") || !strings.Contains(output, want) {
			t.Errorf("exit code %d:\n%s", code, output)
		}
		n.wantPresent("istio-cni.uninstalled")
		n.env["LOG_OUTPUT_LEVEL"] = "error"
		code, output = n.uninstall("-o", "json")
		var report stepsReport
		if err := json.NewDecoder(strings.NewReader(output)).Decode(&report); err != nil || len(report.Steps) == 0 {
			t.Fatalf("%v in\n%s", err, output)
		}
		last := report.Steps[len(report.Steps)-1]
		if code != exitFailure || last.Step != "ambient" || last.Outcome != "failed" || !strings.Contains(last.Reason, want) || !strings.Contains(report.Error, want) {
			t.Errorf("exit code %d: %+v", code, report)
		}
		remove()
		n.mustUninstall()
	}
}

// TestPodsThatHaveEndedAreNotLeft has libcni's cache tell which of the pods with a record have
// ended: no agent removes their records.
func TestPodsThatHaveEndedAreNotLeft(t *testing.T) {
	t.Parallel()
	for cached, want := range map[string]int{
		`["K8S_POD_UID", "7f0b"]`: 1, `["K8S_POD_UID", "another"]`: 0, `["K8S_POD_NAME", "cart"]`: 2, "": 2,
	} {
		n := newNode(t)
		n.capture(false)
		results := filepath.Join(n.cacheDir, "results")
		if err := os.Mkdir(results, 0o700); err != nil {
			t.Fatal(err)
		}
		if cached != "" {
			n.write(results, "pods-c1-eth0", `{"kind": "cniCacheV1", "cniArgs": [`+cached+`]}`, 0o600)
		}
		found, err := lookForLeft(settings.Settings{RunDir: n.runDir, CacheDir: n.cacheDir})
		if err != nil || found.inPods != want {
			t.Errorf("the cache has %s: %+v, %v, want %d", cached, found, err, want)
		}
	}
}
