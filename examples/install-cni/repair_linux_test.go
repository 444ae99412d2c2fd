// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// brokenPod returns a pod of node-1 whose validator reports that it is not captured.
func brokenPod(namespace, name string) fakecluster.Pod {
	code := int32(126)
	return fakecluster.Pod{Namespace: namespace, Name: name, UID: "uid-" + name, Node: "node-1", Owner: "ReplicaSet/web", Validator: &code}
}

// TestRepair labels a pod of one namespace, deletes one of another, leaves alone one that is
// excluded, and counts.
func TestRepair(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	cluster.Put(brokenPod("shop", "cart"), brokenPod("bank", "till"), brokenPod("kube-system", "dns"))
	n.env["MONITORING_PORT"], n.env["EXCLUDE_NAMESPACES"] = "15014", "kube-system"
	n.env["REPAIR_LABEL_PODS"], n.env["REPAIR_POLICY"] = "true", "namespaces=bank do=delete"
	n.env["REPAIR_DISRUPTIONS"] = "3/1s" // the first one after a start waits for that
	p := n.startReady()
	p.waitLine("from=node-watcher", "pod=shop/cart", "action=label", "result=success")
	p.waitLine("from=node-watcher", "pod=bank/till", "action=delete", "result=success")
	p.waitLog("counted", func() bool {
		_, body := get(t, "http://"+p.address(":15014")+"/metrics")
		return strings.Contains(body, "\nmeshcni_repair_scan_complete 1\n") &&
			strings.Contains(body, "\n"+`istio_cni_repair_pods_repaired_total{result="success",type="label"} 1`+"\n") &&
			strings.Contains(body, "\n"+`istio_cni_repair_pods_repaired_total{result="success",type="delete"} 1`+"\n")
	})
	cart, _ := cluster.Pod("shop", "cart")
	_, till := cluster.Pod("bank", "till")
	dns, _ := cluster.Pod("kube-system", "dns")
	if cart.Labels["cni.istio.io/uninitialized"] != "true" || till || len(dns.Labels) != 0 {
		t.Errorf("labels %v and %v, till is there: %v", cart.Labels, dns.Labels, till)
	}
	if events := cluster.Events(); len(events) != 2 {
		t.Errorf("events %+v", events)
	}
}

// entryExcluding returns a template for the plugin's entry in which only a namespace is excluded.
func entryExcluding(namespace string) string {
	return `{"type": "istio-cni", "name": "istio-cni", "exclude_namespaces": ["` + namespace + `"]}`
}

// wantTillAlone waits until repair has looked at all pods, and checks that it left alone pod till,
// which was not captured.
func (p *process) wantTillAlone(cluster *fakecluster.Cluster) {
	p.node.t.Helper()
	body := ""
	p.waitLog("all pods were looked at", func() bool {
		_, body = get(p.node.t, "http://"+p.address(":15014")+"/metrics")
		return strings.Contains(body, "\nmeshcni_repair_scan_complete 1\n")
	})
	if !strings.Contains(body, "\n"+`meshcni_repair_pods{verdict="broken"} 1`+"\n") {
		p.node.t.Errorf("not one pod counts as broken:\n%s", body)
	}
	if till, _ := cluster.Pod("bank", "till"); len(till.Labels) != 0 || strings.Contains(p.log.String(), "pod=bank/till") {
		p.node.t.Errorf("a pod that the plugin leaves alone has the labels %v:\n%s", till.Labels, p.log)
	}
}

// TestRepairObeysTheTemplate has namespaces that only the template for the plugin's entry excludes:
// the plugin leaves their pods alone, and so does repair. It learns of a new template.
func TestRepairObeysTheTemplate(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	cluster.Put(brokenPod("shop", "cart"), brokenPod("bank", "till"))
	n.configMap(map[string]string{"cni_network_config": entryExcluding("bank")})
	delete(n.env, "EXCLUDE_NAMESPACES")
	n.env["REPAIR_LABEL_PODS"], n.env["MONITORING_PORT"] = "true", "15014"
	p := n.startReady()
	p.waitLine("from=node-watcher", "pod=shop/cart", "action=label", "result=success")
	p.wantTillAlone(cluster)
	n.configMap(map[string]string{"cni_network_config": entryExcluding("none")})
	p.waitLine("part=pods", "the settings of repair have changed")
	p.waitLine("from=node-watcher", "pod=bank/till", "action=label", "result=success")
}

// TestRepairObeysTheTemplatesFile has a template's file that becomes unusable: a node-watcher that
// is started again still knows the pods, and leaves alone what the plugin does. Then nothing but
// the file changes.
func TestRepairObeysTheTemplatesFile(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	cluster.Put(brokenPod("shop", "cart"), brokenPod("bank", "till"))
	n.configMap(map[string]string{"template": entryExcluding("bank")})
	delete(n.env, "EXCLUDE_NAMESPACES")
	n.env["SETTINGS_DIR"], n.env["CNI_NETWORK_CONFIG_FILE"] = "", filepath.Join(n.settingsDir, "template")
	n.env["REPAIR_LABEL_PODS"], n.env["MONITORING_PORT"] = "true", "15014"
	p := n.startReady()
	p.wantTillAlone(cluster)

	n.configMap(map[string]string{"template": `{"type": "__NOTHING__"}`})
	p.untilLogged("a new value is refused; the old one stays")
	p.killWatcher()
	p.waitReady()
	p.wantTillAlone(cluster)

	n.configMap(map[string]string{"template": entryExcluding("none")})
	p.waitLine("part=pods", "the settings of repair have changed")
	p.waitLine("from=node-watcher", "pod=bank/till", "action=label", "result=success")
	n.until("the entry to change", n.netDir, func() bool { return slices.Equal(n.entry().ExcludeNamespaces, []string{"none"}) })
}

// TestReportsWithoutCapabilities: a daemon without any capability reports a pod that was started
// without the plugin, by the records alone.
func TestReportsWithoutCapabilities(t *testing.T) {
	t.Parallel()
	program := build(t, installCNI)
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	cluster.Delete("shop", "web-0")
	n.env["MONITORING_PORT"] = "15014"
	daemon, log := n.startProgramBy(confined(), program, "msg=ready")
	wantPrivileges(t, daemon.Process.Pid, 0)
	plan, err := sidecar.Plan(sidecar.Redirect{}, interception.Facts{}, "istio-cni")
	if err != nil {
		t.Fatal(err)
	}
	err = journal.Journal{Directory: filepath.Join(n.runDir, "journal")}.Write(journal.Record{
		Attachment: journal.Attachment{Network: "pods", ContainerID: "c1", Interface: "eth0"}, Time: time.Now(), Planner: "v1",
		Namespace: "shop", Name: "till", UID: "uid-till", Plan: plan,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"till", "cart"} {
		cluster.Put(fakecluster.Pod{Namespace: "shop", Name: name, UID: "uid-" + name, Node: "node-1"})
	}
	reported := func() bool {
		return strings.Contains(log.String(), `have the pod created again" pod=shop/cart result=success`)
	}
	if !log.Await(patience, reported) {
		t.Fatalf("nothing is said of the pod:\n%s", log)
	}
	signalAndWait(t, daemon, syscall.SIGTERM, 0)
	events := cluster.Events()
	if len(events) != 1 || events[0].Reason != "SuspectPod" || events[0].Pod != "cart" || !strings.Contains(events[0].Message, "created again") {
		t.Errorf("events %+v\n%s", events, log)
	}
}

// TestRepairLeavesAlone pods that are excluded later: the node-watcher is restarted with the new
// setting.
func TestRepairLeavesAlone(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	directory := t.TempDir()
	n.env["SETTINGS_DIR"], n.env["REPAIR_LABEL_PODS"] = directory, "true"
	p := n.startReady()
	n.write(directory, "new", "shop", 0o644)
	mustRename(t, directory+"/new", directory+"/exclude-namespaces")
	p.waitLine("part=pods", "the settings of repair have changed")
	cluster.Put(brokenPod("shop", "cart"), brokenPod("bank", "till"))
	p.waitLine("from=node-watcher", "pod=bank/till", "action=label", "result=success")
	if cart, _ := cluster.Pod("shop", "cart"); len(cart.Labels) != 0 {
		t.Errorf("labels %v", cart.Labels)
	}
}

// TestRepairIsOff watches pods without handling them.
func TestRepairIsOff(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster := clusterFor(t, n)
	cluster.Put(brokenPod("shop", "cart"))
	n.env["MONITORING_PORT"], n.env["REPAIR_ENABLED"] = "15014", "false"
	p := n.startReady()
	_, body := get(t, "http://"+p.address(":15014")+"/metrics")
	if strings.Contains(body, "repair") || len(cluster.Writes()) != 0 {
		t.Errorf("writes %v\n%s", cluster.Writes(), body)
	}
}
