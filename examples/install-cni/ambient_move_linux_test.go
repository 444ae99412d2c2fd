// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

// mesh is a node of namespaces with the daemon's files, a pod of the mesh, and the proxies of both
// modes.
type mesh struct {
	*testNode

	on  *nodes.Node
	pod *nodes.Place
}

// The pods of a mesh.
const (
	meshPodUID   = "1c6b2f1e-9d3c-4f7a-8a51-000000000001"
	meshProxyUID = "1c6b2f1e-9d3c-4f7a-8a51-000000000002"
)

// object returns a pod of the cluster that runs in a place.
func object(uid, namespace, name, app string, in *nodes.Place) fakecluster.Pod {
	return fakecluster.Pod{
		Namespace: namespace, Name: name, UID: uid, Node: "node-1",
		Object: fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":%q,"name":%q,"uid":%q,"labels":{"app":%q},
			"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"nodeName":"node-1","containers":[{"name":"app"}]},
			"status":{"phase":"Running","podIPs":[{"ip":%q},{"ip":%q}],"conditions":[{"type":"Ready","status":"True"}]}}`,
			namespace, name, uid, app, in.Addresses[0], in.Addresses[1]),
	}
}

func newMesh(t *testing.T) *mesh {
	t.Helper()
	m := &mesh{testNode: newReadyNode(t), on: nodes.New(t)[0]}
	m.pod = m.on.NewPod(meshPodUID, interception.IPv4, interception.IPv6)
	own := m.on.NewPod(meshProxyUID, interception.IPv4, interception.IPv6)
	own.StartProxy(t)
	cluster := clusterFor(t, m.testNode)
	cluster.PutNamespace("shop", map[string]string{"istio.io/dataplane-mode": "ambient"})
	cluster.PutNamespace("istio-system", nil)
	cluster.Delete("shop", "web-0") // which clusterFor has added, and runs nowhere
	cluster.Put(object(meshPodUID, "shop", "cart", "cart", m.pod), object(meshProxyUID, "istio-system", "ztunnel-x", "ztunnel", own))
	socket := filepath.Join(m.runDirParent(), "ztunnel", "ztunnel.sock")
	m.prepare(nil, map[string]string{
		"AMBIENT_ENABLED": "true", "NODE_AMBIENT": build(t, nodeAmbient), "DRAIN_TIMEOUT": "1s", "NATIVE_NFTABLES": "true", "REPAIR_ENABLED": "false",
		"ZTUNNEL_UDS_ADDRESS": socket, "MOUNTED_PROC_DIR": m.on.Roots().Proc, "MOUNTED_NETNS_DIRS": strings.Join(m.on.Roots().Netns, ","),
	})
	proxy, err := ambienttest.StartProxy(ambienttest.ProxyOptions{Socket: socket, Numbers: ambient.IstioNumbers()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() }) // what it says of the agent's end is nothing
	return m
}

// awaitEnrolled waits until the agent says that the pod is captured, and as wanted.
func (m *mesh) awaitEnrolled() {
	m.t.Helper()
	for deadline := time.After(patience); ; {
		node, err := event.Pods(m.t.Context(), filepath.Join(m.runDir, "pluginevent.sock"), event.Selection{UID: meshPodUID})
		if err == nil && len(node.Pods) == 1 && node.Pods[0].Managed && ambientRight(node, event.Selection{}) == nil {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			m.t.Fatalf("the pod is not captured: %+v, %v", node, err)
		}
	}
}

// captures reports whether an owner has rules in a place.
func (m *mesh) captures(in *nodes.Place, owner interception.Owner) bool {
	m.t.Helper()
	dataplane, err := nftables.New(nftables.Options{})
	if err != nil {
		m.t.Fatal(err)
	}
	state, err := dataplane.Observe(m.t.Context(), in.Netns, owner)
	if err != nil {
		m.t.Fatal(err)
	}
	return len(state.Objects) > 0
}

// TestAmbientModeIsChanged has a daemon with another ambient-mode take the node over from one whose
// pod is captured: the pod moves, to the node's namespace and back to its own.
func TestAmbientModeIsChanged(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	for i, mode := range []string{ambientconf.ModeInPod, ambientconf.ModeNode, ambientconf.ModeInPod} {
		m.env["AMBIENT_MODE"] = mode
		p := m.startReady()
		if i > 0 {
			p.waitLine("from=node-ambient", "nothing of the former is left")
		}
		m.awaitEnrolled()
		p.end()
		records, err := journal.Journal{Directory: filepath.Join(m.runDir, "ambient")}.Attachments()
		onNode := mode == ambientconf.ModeNode
		if err != nil || (len(records) == 0) != onNode {
			t.Errorf("mode %s: there are %d records, %v", mode, len(records), err)
		}
		if m.captures(m.pod, ambientconf.Owner) == onNode || m.captures(m.on.Host, ambientconf.NodeOwner) != onNode {
			t.Errorf("mode %s: the pod has rules: %t, the node's namespace: %t", mode, m.captures(m.pod, ambientconf.Owner), m.captures(m.on.Host, ambientconf.NodeOwner))
		}
	}
}
