// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// Node is a node made of namespaces: its host's, and one for each pod. A pod and its host share a
// wire with a subnet of its own, and the host routes between its pods and the other node. The pods
// are found by the node's directories, as on a real one.
type Node struct {
	// Host is where the node's own programs run.
	Host *Place

	tree    *fakenode.Node
	number  int
	pods    int
	ordinal *int // of the last place, over both nodes
}

// uplink leads from a node to the other one.
const uplink = "eth0"

// New makes two nodes without pods, which end with the test. It fails the test if it cannot:
// call dataplanetest.RunTests from TestMain.
func New(t testing.TB) [2]*Node {
	t.Helper()
	var nodes [2]*Node
	ordinal := 0
	for i := range nodes {
		n := &Node{tree: fakenode.New(t), number: i + 1, ordinal: &ordinal}
		n.Host = n.place(fmt.Sprintf("host-%d", n.number))
		n.must(n.Host.set("ipv4/ip_forward", "1"))
		n.must(n.Host.set("ipv6/conf/all/forwarding", "1"))
		n.tree.Link(n.Host.namespace.Path(), filepath.Join(n.tree.Roots.Proc, "1", "ns", "net"))
		nodes[i] = n
	}
	nodes[0].must(join(t.Context(), nodes[0].Host, uplink, nodes[1].Host, uplink))
	for i, n := range nodes {
		for _, family := range families() {
			n.must(n.Host.addAddress(t.Context(), uplink, subnet(family, 0, 0, i)))
		}
	}
	for i, n := range nodes {
		for _, family := range families() {
			n.must(n.Host.addRoute(network(family, 2-i), subnet(family, 0, 0, 1-i).Addr()))
		}
	}
	return nodes
}

func families() []interception.Family {
	return []interception.Family{interception.IPv4, interception.IPv6}
}

// subnet returns the address, with its network, of one of two ends of the wire of a node's pod. The
// wire between the nodes is that of node 0.
func subnet(family interception.Family, node, pod, end int) netip.Prefix {
	last := byte(pod*4 + end + 1)
	if family == interception.IPv4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(node), last}), 30)
	}
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 2: 0x02, 3: 0x44, 7: byte(node), 15: last}), 126)
}

// network returns the subnets of all pods of a node.
func network(family interception.Family, node int) netip.Prefix {
	bits := 24
	if family == interception.IPv6 {
		bits = 64
	}
	return netip.PrefixFrom(subnet(family, node, 0, 0).Addr(), bits).Masked()
}

// place makes a namespace.
func (n *Node) place(name string) *Place {
	n.tree.Helper()
	*n.ordinal++
	p := &Place{Name: name, wires: map[interception.Interface]wire{}}
	p.namespace = n.tree.Namespace(name)
	n.must(p.set("ipv6/conf/all/accept_dad", "0"))
	n.must(p.set("ipv6/conf/default/accept_dad", "0"))
	// No two places choose the same port for a connection: the proxy keeps its client's address, and
	// the kernel would translate one of two equal ports, which a trace does not.
	first := 20000 + 1000**n.ordinal // above the proxy's own ports
	n.must(p.set("ipv4/ip_local_port_range", fmt.Sprintf("%d %d", first, first+999)))
	netns, err := interception.OpenNetns(p.namespace.Path(), interception.NetnsOptions{})
	n.must(err)
	p.Netns = netns
	n.tree.Cleanup(func() { _ = netns.Close() }) // nothing was written
	return p
}

// NewPod adds a pod with a process. The pod has an address of each family.
func (n *Node) NewPod(uid string, families ...interception.Family) *Place {
	n.tree.Helper()
	n.pods++
	p := n.place(fmt.Sprintf("pod-%d-%d", n.number, n.pods))
	link := fmt.Sprintf("veth%d", n.pods)
	n.must(join(n.tree.Context(), p, uplink, n.Host, link))
	for _, family := range families {
		n.must(n.Host.addAddress(n.tree.Context(), link, subnet(family, n.number, n.pods, 0)))
		own := subnet(family, n.number, n.pods, 1)
		n.must(p.addAddress(n.tree.Context(), uplink, own))
		p.Addresses = append(p.Addresses, own.Addr())
		n.must(p.addRoute(netip.Prefix{}, subnet(family, n.number, n.pods, 0).Addr()))
	}
	n.tree.Process(p.namespace.Path(), fakenode.Cgroup(uid, "cri-containerd"))
	return p
}

// Roots are the node's directories, by which a [podnetns.Finder] finds its pods.
func (n *Node) Roots() podnetns.Roots { return n.tree.Roots }

func (n *Node) must(err error) {
	n.tree.Helper()
	if err != nil {
		n.tree.Fatalf("make a node: %v", err)
	}
}

// set writes a setting below /proc/sys/net.
func (p *Place) set(name, value string) error {
	return p.namespace.Do(func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
}

// addRoute adds a route; to everything if the destination is not valid.
func (p *Place) addRoute(to netip.Prefix, by netip.Addr) error {
	route := &netlink.Route{Gw: by.AsSlice()}
	if to.IsValid() {
		route.Dst = sandbox.IPNet(to)
	}
	if err := p.namespace.Netlink().RouteAdd(route); err != nil {
		return fmt.Errorf("add the route %s in %s: %w", route, p.Name, err)
	}
	return nil
}
