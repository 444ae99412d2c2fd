// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
)

// asIstiosToday gives a node the environment of the DaemonSet and the ConfigMap of Istio's chart
// with its default values.
func (n *testNode) asIstiosToday() {
	n.t.Helper()
	text, err := os.ReadFile("../e2e/testdata/istio-cni.yaml")
	if err != nil {
		n.t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var o struct {
			Data map[string]string
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Env []struct{ Name, Value string }
						}
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			n.t.Fatalf("%v in\n%s", err, document)
		}
		maps.Copy(n.env, o.Data)
		for _, c := range o.Spec.Template.Spec.Containers {
			for _, v := range c.Env {
				if v.Value != "" { // the others are references
					n.env[v.Name] = v.Value
				}
			}
		}
	}
	n.env["REPAIR_NODE_NAME"], n.env["GOMEMLIMIT"] = "node-1", "8589934592"
	if n.env["REPAIR_REPAIR_PODS"] != "true" || n.env["REPAIR_RUN_AS_DAEMON"] != "true" {
		n.t.Fatal("the ConfigMap or the DaemonSet has not been found")
	}
}

// TestIstiosDaemonSetWithoutTheNodesProc is ready, reports a pod that is not captured, and logs
// what it cannot do and why.
func TestIstiosDaemonSetWithoutTheNodesProc(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	cluster.Put(brokenPod("shop", "cart"))
	n.asIstiosToday()
	n.env["MOUNTED_PROC_DIR"] = filepath.Join(t.TempDir(), "proc")
	p := n.startReady("--log_output_level=info")
	p.waitLine("level=WARN", "repair does less than the settings ask for", n.env["MOUNTED_PROC_DIR"]+" doesn't show the node's processes")
	p.waitLine("from=node-watcher", "pod=shop/cart", "action=report", "result=success")
	status, parts := p.verbose()
	if status != http.StatusOK || !strings.Contains(parts["repair"], "mount the node's /proc there") {
		t.Errorf("%d: repair: %q", status, parts["repair"])
	}
	if events := cluster.Events(); len(events) != 1 {
		t.Errorf("events %+v", events)
	}
	for _, unwanted := range []string{"these settings are accepted", "these look like settings"} {
		if strings.Contains(p.log.String(), unwanted) {
			t.Errorf("the log has %q", unwanted)
		}
	}
}

// TestRepairWithoutTheNodesProc uses the next mode.
func TestRepairWithoutTheNodesProc(t *testing.T) {
	t.Parallel()
	for name, directory := range map[string]string{"nothing is mounted": "/no/such", "something else is": t.TempDir(), "none is named": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newReadyNode(t)
			cluster := clusterFor(t, n)
			cluster.Put(brokenPod("shop", "cart"))
			n.env["REPAIR_REPAIR_PODS"], n.env["REPAIR_LABEL_PODS"], n.env["MOUNTED_PROC_DIR"] = "true", "true", directory
			p := n.startReady()
			p.waitLine("from=node-watcher", "pod=shop/cart", "action=label", "result=success")
			p.waitLine("repair does less than the settings ask for", "pods can't be repaired in place")
		})
	}
}

// TestRepairWithoutTheNodesProcessOne names what keeps a container from process 1: capabilities,
// and a profile of AppArmor.
func TestRepairWithoutTheNodesProcessOne(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "1", "cgroup"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(mountShortfalls(settings.Settings{
		NodeName: "node-1", Repair: settings.Repair{Enabled: true, InPlace: true, ProcDir: proc},
	}), "")
	for _, remedy := range []string{"SYS_PTRACE", "on a node with AppArmor the profile Unconfined"} {
		if !strings.Contains(said, remedy) {
			t.Errorf("no %q in %q", remedy, said)
		}
	}
}

// TestRepairWithTheNodesProc lacks nothing.
func TestRepairWithTheNodesProc(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	clusterFor(t, n)
	n.env["REPAIR_REPAIR_PODS"], n.env["MOUNTED_PROC_DIR"] = "true", "/proc"
	p := n.startReady()
	p.waitLog("repair is right", func() bool {
		_, parts := p.verbose()
		reason, is := parts["repair"]
		return is && reason == ""
	})
}

// TestRepairNeedsTheNodesName does not end the daemon: the plugin works without repair.
func TestRepairNeedsTheNodesName(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	n.env["REPAIR_REPAIR_PODS"] = "true"
	n.startReady().waitLine("repair does less than the settings ask for", "set node-name")
}

// TestRepairLacksAVerb reports the missing verb, until the role has it.
func TestRepairLacksAVerb(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	cluster.Answer(func(r *http.Request) int {
		if r.Method == http.MethodPatch || r.Method == http.MethodPost {
			return http.StatusForbidden
		}
		return 0
	})
	cluster.Put(brokenPod("shop", "cart"))
	n.env["REPAIR_LABEL_PODS"] = "true"
	p := n.startReady()
	p.waitLine("level=WARN", "repair does less than the settings ask for", "label: ", "event: ", "a role that allows it")
	if status, parts := p.verbose(); status != http.StatusOK || !strings.Contains(parts["repair"], "label: ") {
		t.Errorf("%d: repair: %q", status, parts["repair"])
	}
	cluster.Answer(nil)
	till := brokenPod("bank", "till")
	till.Owner = "ReplicaSet/till" // the other owner's pod waits for its limit
	cluster.Put(till)
	p.waitLog("it is right again", func() bool {
		_, parts := p.verbose()
		return parts["repair"] == ""
	})
}
