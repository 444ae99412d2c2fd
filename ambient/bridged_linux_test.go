// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestNodeBridgedPods connects a pod of the mesh and another one by a bridge of their node, too.
// The bridge takes packets between them past the node's routes, and so past the proxy. Where it has
// the rules see them (net.bridge.bridge-nf-call-iptables), these refuse the connections.
func TestNodeBridgedPods(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		for _, rules := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, rules see bridged packets: %t", name, rules), func(t *testing.T) {
				t.Parallel()
				n := newCapturingNode(t, backend, ambient.WayVeth)
				n.bridge(rules, n.meshed, n.other)
				for family := range 2 {
					enter(t, backend, n.node.Host.Netns, "test-ambient", bridged(0, family))
				}
				for _, ends := range [][2]int{{0, 1}, {1, 0}} {
					from := []*nodes.Place{n.meshed, n.other}[ends[0]]
					for family := range 2 {
						to := netip.AddrPortFrom(bridged(ends[1], family), 8080)
						visit, took, err := n.visit(from, "tcp", to)
						if errors.Is(err, syscall.ECONNREFUSED) != rules || err != nil && !rules || len(took) > 0 {
							t.Errorf("%s to %s: %v, %v, and the proxy took %v", from.Name, to, visit, err, took)
						}
					}
				}
				// The way between other pods of the mesh is as before.
				for family := range 2 {
					to := netip.AddrPortFrom(n.peer.Addresses[family], 8080)
					if visit, took, err := n.visit(n.meshed, "tcp", to); err != nil || len(took) != 1 {
						t.Errorf("to %s: %v, %v, and the proxy took %v", to, visit, err, took)
					}
				}
			})
		}
	}
}

// bridge gives pods another link, which is a port of a bridge on the node. The node has addresses
// there: without a route to a client it could not refuse its connections, which would time out.
func (n *capturingNode) bridge(rulesSee bool, pods ...*nodes.Place) {
	n.t.Helper()
	host := n.node.Host.Netns.File()
	run := func(in *os.File, format string, values ...any) {
		n.t.Helper()
		sandboxtest.Run(n.t, in, "", strings.Fields("ip "+fmt.Sprintf(format, values...))...)
	}
	run(host, "link add cni0 type bridge")
	run(host, "link set cni0 up")
	run(host, "address add %s/24 dev cni0", bridged(253, 0))
	run(host, "address add %s/64 dev cni0 nodad", bridged(253, 1))
	for i, pod := range pods {
		run(host, "link add port%d type veth peer name eth1 netns %s", i, pod.Netns.File().Name())
		run(host, "link set port%d master cni0 up", i)
		run(pod.Netns.File(), "link set eth1 up")
		run(pod.Netns.File(), "address add %s/24 dev eth1", bridged(i, 0))
		run(pod.Netns.File(), "address add %s/64 dev eth1 nodad", bridged(i, 1))
	}
	value := map[bool]string{true: "1", false: "0"}[rulesSee]
	for _, of := range []string{"iptables", "ip6tables"} {
		if err := namespace.Run(host, func() error { return os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+of, []byte(value), 0) }); err != nil {
			n.t.Fatalf("the kernel's module br_netfilter: %v; run: sudo modprobe br_netfilter", err)
		}
	}
}

// bridged returns a pod's address at the bridge.
func bridged(pod, family int) netip.Addr {
	text := []string{"10.245.0.%d", "fd00:10:245::%d"}[family]
	return netip.MustParseAddr(fmt.Sprintf(text, pod+1))
}
