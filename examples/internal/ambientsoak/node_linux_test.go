// SPDX-License-Identifier: Apache-2.0

package ambientsoak

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
	"github.com/meshcni/meshcni/internal/testing/testlog"
)

const nodeName = "node-1"

// node is a node with its programs and pods, and the rest of the world.
type node struct {
	t         *testing.T
	random    *rand.Rand
	cluster   *fakecluster.Cluster
	server    netip.AddrPort // the API server's
	tree      *fakenode.Node
	dir       string // of sockets and records
	host      *sandbox.Namespace
	hostNetns *interception.Netns
	world     *sandbox.Namespace
	dataplane *nftables.Dataplane
	log       *testlog.Log
	daemon    *daemon
	proxy     *ambienttest.Proxy
	others    *foreign       // on the host
	files     map[string]int // how many each program had open at the start
	plans     plans
	slowest   recovery
	load      load

	pods         []*pod
	wrong        int // the index of the pod that was not right last
	created      int
	adding       int // how many ADDs have not returned
	added        chan addition
	refused      atomic.Value // how an ADD has failed last
	made, failed atomic.Int64 // connections
}

func newNode(t *testing.T, random *rand.Rand) *node {
	t.Helper()
	n := &node{t: t, random: random, cluster: fakecluster.New(), tree: fakenode.New(t), dir: t.TempDir(), log: testlog.New(), added: make(chan addition, *count)}
	t.Cleanup(func() {
		if strings.Contains(n.log.String(), "DATA RACE") {
			t.Error("the race detector has found something in a program")
		}
		if t.Failed() {
			t.Logf("the programs say:\n%s", n.log)
		}
	})
	var err error
	n.plans, err = newPlans()
	n.must(err)
	n.dataplane, err = nftables.New(nftables.Options{})
	n.must(err)
	n.host, n.world = n.tree.Namespace("host"), n.tree.Namespace("world")
	n.must(n.host.Do(func() error {
		for _, setting := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+setting, []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	}))
	n.tree.Link(n.host.Path(), filepath.Join(n.tree.Roots.Proc, "1", "ns", "net"))
	n.hostNetns, err = interception.OpenNetns(n.host.Path(), interception.NetnsOptions{})
	n.must(err)
	t.Cleanup(func() { _ = n.hostNetns.Close() }) // nothing was written
	n.wire(n.world, 0)
	n.openWorld()
	n.others = n.newForeign(n.host, hostRules)
	server := httptest.NewServer(n.cluster.Handler())
	t.Cleanup(func() { n.cluster.Refuse(http.StatusServiceUnavailable); server.Close() })
	n.cluster.PutNamespace(podNamespace, nil)
	n.server = netip.MustParseAddrPort(server.Listener.Addr().String())
	n.daemon = n.newDaemon(server.URL)
	n.daemon.start()
	n.startProxy()
	t.Cleanup(func() { _ = n.proxy.Close() }) // what it says of the agent's end is nothing
	return n
}

// openWorld runs an application in the rest of the world.
func (n *node) openWorld() {
	n.t.Helper()
	var listener net.Listener
	n.must(n.world.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(n.t.Context(), "tcp", fmt.Sprintf("[::]:%d", port))
		return err
	}))
	go greet(listener)
	n.t.Cleanup(func() { _ = listener.Close() }) // nothing was written
}

func (n *node) worldAddresses() []netip.Addr {
	return []netip.Addr{end(4, 0, 1).Addr(), end(6, 0, 1).Addr()}
}

func (n *node) startProxy() {
	n.t.Helper()
	proxy, err := ambienttest.StartProxy(ambienttest.ProxyOptions{Socket: n.path("ztunnel.sock"), Numbers: ambient.IstioNumbers(), Observe: n.hear})
	n.must(err)
	n.proxy = proxy
}

// hear wakes the test when the proxy does something.
func (n *node) hear(ambienttest.Event) { n.log.Tell() }

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// build builds a program of the examples.
func (n *node) build(name string) string {
	n.t.Helper()
	path := filepath.Join(n.t.TempDir(), name)
	build := exec.Command("go", "build", fmt.Sprintf("-race=%t", raced), "-o", path, "../../"+name)
	if output, err := build.CombinedOutput(); err != nil {
		n.t.Fatalf("build %s: %v\n%s", name, err, output)
	}
	return path
}
