// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// podNamespace creates the network namespace of a fakecluster's pod, as a runtime does without the
// plugin.
func (n *testNode) podNamespace(uid string) *sandbox.Namespace {
	n.t.Helper()
	dir := n.t.TempDir()
	ns, err := sandbox.NewNamespace(filepath.Join(dir, "cni-1"))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = ns.Close() })
	if err := ns.AddAddress(n.t.Context(), "lo", netip.MustParsePrefix("10.244.0.7/32")); err != nil {
		n.t.Fatal(err)
	}
	results := filepath.Join(n.env["MOUNTED_CNI_CACHE_DIR"], "results")
	if err := os.MkdirAll(results, 0o700); err != nil {
		n.t.Fatal(err)
	}
	n.write(results, "pods-c1-eth0", fmt.Sprintf(`{"kind": "cniCacheV1", "containerId": "c1", "ifName": "eth0", "networkName": "pods",
		"cniArgs": [["K8S_POD_NAMESPACE", "shop"], ["K8S_POD_NAME", "cart"], ["K8S_POD_UID", %q]],
		"netns": "/var/run/netns/cni-1"}`, uid), 0o600)
	n.env["MOUNTED_PROC_DIR"], n.env["MOUNTED_NETNS_DIRS"] = "/proc", dir
	return ns
}

// TestRepairInPlace repairs a pod that is older than the plugin, and records it.
func TestRepairInPlace(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	ns := n.podNamespace("uid-cart")
	cluster.Put(fakecluster.Pod{Namespace: "shop", Name: "cart", UID: "uid-cart", Node: "node-1"})
	n.env["MONITORING_PORT"] = "15014"
	n.env["REPAIR_REPAIR_PODS"], n.env["REPAIR_DELETE_PODS"], n.env["REPAIR_ACT_AT_START"] = "true", "true", "true"
	p := n.startReady()
	p.waitLine("from=node-watcher", "pod=shop/cart", "action=repair", "result=success")
	p.waitLog("counted", func() bool {
		_, body := get(t, "http://"+p.address(":15014")+"/metrics")
		return strings.Contains(body, "\n"+`istio_cni_repair_pods_repaired_total{result="success",type="repair"} 1`+"\n") &&
			strings.Contains(body, "\n"+`meshcni_repair_pods{verdict="healthy"} 1`+"\n")
	})
	record, err := journal.Journal{Directory: filepath.Join(n.runDir, "journal")}.Read(
		journal.Attachment{Network: "pods", ContainerID: "c1", Interface: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	netns, err := interception.OpenNetns(ns.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = netns.Close() }()
	dataplane, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	state, err := dataplane.Observe(t.Context(), netns, "istio-cni")
	if drift := interception.Diff(record.Plan, state); err != nil || drift != nil || record.UID != "uid-cart" {
		t.Errorf("recorded for %s: %v, %v", record.UID, drift, err)
	}
	if _, there := cluster.Pod("shop", "cart"); !there {
		t.Error("the pod was deleted")
	}
}

// TestRepairInPlaceTheKernelRefuses has a pod whose loopback interface is down, so that the kernel
// refuses a route. The log has the kernel's explanation and the error.
func TestRepairInPlaceTheKernelRefuses(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	ns := n.podNamespace("uid-cart")
	lo, err := ns.Netlink().LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Netlink().LinkSetDown(lo); err != nil {
		t.Fatal(err)
	}
	cluster.Put(fakecluster.Pod{
		Namespace: "shop", Name: "cart", UID: "uid-cart", Node: "node-1", Annotations: map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"},
	})
	n.env["REPAIR_REPAIR_PODS"], n.env["REPAIR_ACT_AT_START"] = "true", "true"
	p := n.startReady()
	p.waitLine("from=node-watcher", "kernel refused tproxy.route.v6", "network is down: Nexthop device is not up", "pod=shop/cart", "result=fail")
}
