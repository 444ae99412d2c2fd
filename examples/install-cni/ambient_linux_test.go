// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// cart returns a pod without a sidecar, with annotations as JSON. The cluster shows annotations
// that are written later only in what Pod returns.
func cart(annotations string) fakecluster.Pod {
	return fakecluster.Pod{
		Namespace: "shop", Name: "cart", UID: "uid-cart", Node: "node-1",
		Object: `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"shop","name":"cart","uid":"uid-cart","annotations":` + annotations + `},
			"spec":{"nodeName":"node-1","containers":[{"name":"app"}]},"status":{"phase":"Running","podIPs":[{"ip":"10.244.0.7"}]}}`,
	}
}

// eventually waits until a condition holds, of which nothing tells.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.After(patience); !holds(); {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// inAmbientMode has the node in ambient mode, with the namespace of pod cart.
func (n *testNode) inAmbientMode(t *testing.T) (cluster *fakecluster.Cluster, ns *sandbox.Namespace) {
	t.Helper()
	cluster = clusterFor(t, n)
	cluster.PutNamespace("shop", nil)
	cluster.Put(cart(`{}`))
	n.prepare(nil, map[string]string{
		"AMBIENT_ENABLED": "true", "NODE_AMBIENT": build(t, nodeAmbient), "MONITORING_PORT": "15014", "DRAIN_TIMEOUT": "1s", "NATIVE_NFTABLES": "true",
		"REPAIR_ENABLED": "false", "UNINSTALL_ON_EXIT": "true", "ZTUNNEL_UDS_ADDRESS": filepath.Join(n.runDirParent(), "ztunnel", "ztunnel.sock"),
	})
	return cluster, n.podNamespace("uid-cart")
}

// TestAmbientMode has a pod enrolled while it runs, by a label of its namespace, and taken out
// again by a setting, and in the end by an uninstall. Meanwhile node-ambient is killed.
func TestAmbientMode(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	cluster, ns := n.inAmbientMode(t)
	n.configMap(map[string]string{"exclude-namespaces": "istio-system"})
	p := n.startReady()
	status, parts := p.verbose()
	if reason, is := parts["ambient"]; status != 200 || !is || reason != "" || !strings.Contains(parts["ambient-proxy"], "no proxy is connected") {
		t.Errorf("without a proxy: status %d, %v", status, parts)
	}
	p.wantMetrics("ztunnel_connected 0", `meshcni_ambient_pods{state="enrolled"} 0`, `meshcni_part_ready{part="ambient-proxy"} 0`)
	if !n.entry().AmbientEnabled {
		t.Error("the plugin's entry is not for ambient mode")
	}
	proxy, err := ambienttest.StartProxy(ambienttest.ProxyOptions{Socket: n.env["ZTUNNEL_UDS_ADDRESS"], Numbers: ambient.IstioNumbers()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() }) // what it says of the agent's end is nothing
	enrolled := func() bool {
		_, body := get(t, "http://"+p.address(":15014")+"/metrics")
		return strings.Contains(body, "\nztunnel_connected 1\n") && strings.Contains(body, "\nmeshcni_ambient_pods{state=\"enrolled\"} 1\n")
	}
	cluster.PutNamespace("shop", map[string]string{"istio.io/dataplane-mode": "ambient"})
	eventually(t, "the pod is annotated", func() bool {
		pod, _ := cluster.Pod("shop", "cart")
		return pod.Annotations[ambient.Istio().Status] == string(ambient.StatusEnabled)
	})
	eventually(t, "the pod is counted", enrolled)
	wantAmbientRules(t, ns, true)

	p.signalAgent(syscall.SIGKILL)
	p.waitLog("started again", func() bool { return p.agentStarts() == 2 })
	eventually(t, "the pod is counted again", enrolled)
	wantAmbientRules(t, ns, true)

	cluster.Put(cart(`{"ambient.istio.io/redirection":"enabled"}`))
	writes := len(cluster.Writes())
	n.configMap(map[string]string{"exclude-namespaces": "istio-system,shop"})
	eventually(t, "the annotation is removed", func() bool { return len(cluster.Writes()) > writes })
	eventually(t, "the pod has left", func() bool {
		_, body := get(t, "http://"+p.address(":15014")+"/metrics")
		return strings.Contains(body, "\nmeshcni_ambient_pods{state=\"enrolled\"} 0\n") && strings.Contains(body, "\nmeshcni_ambient_pods{state=\"leaving\"} 0\n")
	})
	wantAmbientRules(t, ns, false)
	if got := p.agentStarts(); got != 3 {
		t.Errorf("node-ambient was started %d times, want once more for the setting", got)
	}

	n.configMap(map[string]string{"exclude-namespaces": "istio-system"})
	eventually(t, "the pod is enrolled anew", enrolled)
	wantAmbientRules(t, ns, true)
	p.stop()
	p.wantExit(0)
	wantAmbientRules(t, ns, false)
	if text := p.log.String(); !strings.Contains(text, `msg="all pods have left the mesh" pods=1`) || n.hasEntry("10-calico.conflist") {
		t.Errorf("after the uninstall the entry is there: %v\n%s", n.hasEntry("10-calico.conflist"), text)
	}
}

// agentStarted is what the daemon logs when it starts node-ambient.
const agentStarted = `msg="a program was started" program=node-ambient process=`

// agentStarts returns how often node-ambient was started.
func (p *process) agentStarts() int { return strings.Count(p.log.String(), agentStarted) }

// signalAgent sends a signal to the node-ambient that was started last.
func (p *process) signalAgent(signal syscall.Signal) {
	p.node.t.Helper()
	text := p.log.String()
	number, _, _ := strings.Cut(text[strings.LastIndex(text, agentStarted)+len(agentStarted):], " ")
	pid, err := strconv.Atoi(number)
	if err == nil {
		err = syscall.Kill(pid, signal)
	}
	if err != nil {
		p.node.t.Fatal(err)
	}
}

// TestHungAgentIsStartedAgain stops node-ambient, which then neither answers nor ends: the daemon
// says so, and starts it again.
func TestHungAgentIsStartedAgain(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	n.inAmbientMode(t)
	p := n.startReady()
	p.signalAgent(syscall.SIGSTOP)
	p.waitLine("not ready", "ambient: ", "has not answered for 10s")
	p.waitLog("started again", func() bool { return p.agentStarts() == 2 })
	p.waitReady()
	p.wantMetrics(`meshcni_part_restarts_total{part="ambient"} 1`, `meshcni_part_ready{part="ambient"} 1`)
}

// wantAmbientRules checks whether the pod has rules of ambient mode.
func wantAmbientRules(t *testing.T, ns *sandbox.Namespace, want bool) {
	t.Helper()
	netns, err := interception.OpenNetns(ns.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = netns.Close() }()
	dataplane, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	state, err := dataplane.Observe(t.Context(), netns, ambientconf.Owner)
	if got := len(state.Objects) > 0; err != nil || got != want {
		t.Errorf("the pod has rules: %v, %v; want %v", got, err, want)
	}
}
