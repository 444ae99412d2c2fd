// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// asIstiosToday gives a node the environment that the DaemonSet and the ConfigMap of Istio's chart have with its default values.
func (n *testNode) asIstiosToday() {
	maps.Copy(n.env, map[string]string{
		"AMBIENT_DNS_CAPTURE": "true", "AMBIENT_ENABLED": "false", "AMBIENT_IPV6": "true", "AMBIENT_RECONCILE_POD_RULES_ON_STARTUP": "true",
		"AMBIENT_ENABLEMENT_SELECTOR": "- podSelector:\n    matchLabels:\n      istio.io/dataplane-mode: ambient\n",
		"CHAINED_CNI_PLUGIN":          "true", "CURRENT_AGENT_VERSION": "latest", "ENABLE_AMBIENT_DETECTION_RETRY": "false",
		"EXCLUDE_NAMESPACES": "kube-system", "ISTIO_OWNED_CNI_CONFIG": "false", "NATIVE_NFTABLES": "false",
		"REPAIR_BROKEN_POD_LABEL_KEY": "cni.istio.io/uninitialized", "REPAIR_BROKEN_POD_LABEL_VALUE": "true", "REPAIR_DELETE_PODS": "false",
		"REPAIR_ENABLED": "true", "REPAIR_INIT_CONTAINER_NAME": "istio-validation", "REPAIR_LABEL_PODS": "false", "REPAIR_REPAIR_PODS": "true",
		"REPAIR_NODE_NAME": "node-1", "REPAIR_RUN_AS_DAEMON": "true", "REPAIR_SIDECAR_ANNOTATION": "sidecar.istio.io/status",
		"ALLOW_SWITCH_TO_HOST_NS": "true", "GOMEMLIMIT": "8589934592",
	})
}

// TestIstiosDaemonSetWithoutTheNodesProc is ready, tells of a pod that is not captured, and says what it can't do and why.
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

// TestRepairWithoutTheNodesProc goes on to the next mode.
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

// TestRepairNeedsTheNodesName is no reason to end: the plugin works without.
func TestRepairNeedsTheNodesName(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	n.env["REPAIR_REPAIR_PODS"] = "true"
	n.startReady().waitLine("repair does less than the settings ask for", "set node-name")
}

// TestRepairLacksAVerb says which, until the role has it.
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
	till.Owner = "ReplicaSet/till" // the other one's waits for its limit
	cluster.Put(till)
	p.waitLog("it is right again", func() bool {
		_, parts := p.verbose()
		return parts["repair"] == ""
	})
}
