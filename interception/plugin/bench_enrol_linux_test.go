// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/internal/testing/bareproxy"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// enrolled is the case of a pod that the node's agent of ambient mode enrols.
const enrolled = "ADD of an ambient pod"

// goesOn is long enough for the agent to finish its work on a pod, which it begins 25 ms after its
// answer, and to collect the garbage of that work, which it does another 100 ms later.
const goesOn = 250 * time.Millisecond

// enroller is a node in ambient mode, with a pod for each turn.
type enroller struct {
	testing.TB
	node  *node
	agent *nodeAgent
}

// newEnroller starts install-cni with its node-watcher and its node-ambient, and a proxy that
// acknowledges every pod at once. Its listeners are there before.
func newEnroller(b *testing.B) *enroller {
	b.Helper()
	n, tree, root := newNode(b, func(http.ResponseWriter, *http.Request) { b.Error("the API server was asked") }), fakenode.New(b), b.TempDir()
	tree.Link(tree.Namespace("host").Path(), filepath.Join(tree.Roots.Proc, "1", "ns", "net"))
	cluster := fakecluster.New()
	cluster.PutNamespace("shop", nil)
	for turn := range *turns + 1 {
		cluster.Put(fakecluster.Pod{
			Namespace: "shop", Name: enrolledName(turn), UID: enrolledUID(turn), Node: "node-1", NoSidecar: true, Phase: "Pending", Addresses: []string{""},
			Labels: map[string]string{"istio.io/dataplane-mode": "ambient"},
		})
	}
	socket := filepath.Join(root, "ztunnel.sock")
	e := &enroller{TB: b, node: n, agent: startPrograms(b, n, cluster, root, []string{
		"AMBIENT_ENABLED=true", "NODE_AMBIENT=" + filepath.Join(root, "node-ambient"), "ZTUNNEL_UDS_ADDRESS=" + socket,
		"MOUNTED_PROC_DIR=" + tree.Roots.Proc, "MOUNTED_NETNS_DIRS=" + tree.Roots.Netns[1], "NATIVE_NFTABLES=true",
	})}
	if len(e.agent.processes) != 3 {
		b.Fatalf("install-cni has the processes %v, want itself and two", e.agent.processes)
	}
	bareproxy.Acknowledge(b, socket)
	return e
}

func enrolledName(turn int) string { return fmt.Sprintf("ambient-%d", turn) }

func enrolledUID(turn int) string { return fmt.Sprintf("1c6b2f1e-9d3c-4f7a-8a51-%012d", turn) }

// enrol adds the pod of a turn.
func (m *measurement) enrol(turn int) {
	m.Helper()
	e := m.enroller
	at := newNamespace(m, fmt.Sprint(enrolled, turn))
	m.Cleanup(func() { _ = at.Close() }) // the proxy's listeners would be lost before the end
	for _, address := range []string{fmt.Sprintf("10.244.1.%d/32", turn+1), fmt.Sprintf("fd00::%d/128", turn+1)} {
		if err := at.AddAddress(m.Context(), "lo", netip.MustParsePrefix(address)); err != nil {
			m.Fatal(err)
		}
	}
	bareproxy.Listen(m, at.File(), ambient.IstioNumbers())
	m.ofEmpty[enrolled] = append(m.ofEmpty[enrolled], m.launchArgs(m.empty, "ADD", e.args(at, turn)))
	before := e.agent.cpu()
	took := m.launchArgs(m.plugin, "ADD", e.args(at, turn))
	time.Sleep(goesOn) // otherwise the agent would slow down the next program that is measured
	took.agent = e.agent.cpu() - before
	m.costs[enrolled] = append(m.costs[enrolled], took)
}

func (e *enroller) args(at *sandbox.Namespace, turn int) *skel.CmdArgs {
	args := e.node.add(`{"plugin_log_level": "info", "ambient_enabled": true}`, fmt.Sprintf(`{"prevResult": {"cniVersion": "1.0.0",
		"interfaces": [{"name": "eth0", "sandbox": "/ns"}],
		"ips": [{"interface": 0, "address": "10.244.1.%d/24"}, {"interface": 0, "address": "fd00::%d/64"}]}}`, turn+1, turn+1))
	args.Netns, args.ContainerID = at.Path(), fmt.Sprintf("%064d", turn)
	args.Args = strings.NewReplacer("web-0", enrolledName(turn), uid, enrolledUID(turn)).Replace(args.Args)
	return args
}
