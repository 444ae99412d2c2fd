// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Addresses of the cluster, in the same shape for both families: nodes on a bridge, and a prefix of
// pods for each node.
const (
	bridgeName  = "nodes"
	bridge4     = "172.30.77.1"
	bridge6     = "fd00:172:30:77::1"
	servicesV4  = "10.96.0.0/16"
	servicesV6  = "fd00:10:96::/112"
	kubernetes4 = "10.96.0.1"
	apiPort     = "6443"
)

// addresses are those of the node itself, of each family that it has.
func (n *Node) addresses() []string {
	all := []string{fmt.Sprintf("172.30.77.%d", 10+n.number), fmt.Sprintf("fd00:172:30:77::%d", 10+n.number)}
	if n.ipv6Only() {
		return all[1:]
	}
	return all
}

// ipv6Only reports whether the node has no IPv4 address but that of lo.
func (n *Node) ipv6Only() bool { return n.options.Network == IPv6Network }

func podPrefixes(number int) (v4, v6 string) {
	return fmt.Sprintf("10.244.%d.0/24", number), fmt.Sprintf("fd00:10:244:%d::/64", number)
}

// makeBridge makes the bridge that connects the nodes, and assigns this namespace's addresses to
// it.
func makeBridge() error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = bridgeName
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
		return fmt.Errorf("make the nodes' bridge: %w", err)
	}
	link, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	return setUp(&netlink.Handle{}, link, bridge4+"/24", bridge6+"/64")
}

// connect makes a node's eth0 and its other end on the bridge, with routes from this namespace to
// the node's pods, and from the node to the pods of all others.
func (n *Node) connect(others []*Node) error {
	outside := n.outside()
	if old, err := netlink.LinkByName(outside); err == nil { // left over from before the node ended
		if err := netlink.LinkDel(old); err != nil {
			return err
		}
	}
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MasterIndex, attributes.Flags = outside, bridge.Attrs().Index, net.FlagUp
	veth := &netlink.Veth{
		LinkAttrs: attributes, PeerName: "eth0", PeerNamespace: netlink.NsPid(n.pid()),
		// The same at each boot, because the neighbours cache it.
		PeerHardwareAddr: net.HardwareAddr{0x02, 0, 0, 0, 0, byte(n.number)},
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("connect %s: %w", n.Name, err)
	}
	inside, err := n.netlink()
	if err != nil {
		return err
	}
	defer inside.Close()
	if err := n.address(inside); err != nil {
		return fmt.Errorf("addresses of %s: %w", n.Name, err)
	}
	return n.route(inside, others)
}

func (n *Node) address(inside *netlink.Handle) error {
	loopback, err := inside.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := inside.LinkSetUp(loopback); err != nil {
		return err
	}
	eth0, err := inside.LinkByName("eth0")
	if err != nil {
		return err
	}
	prefixes, gateways := []string{"/24", "/64"}, []string{bridge4, bridge6}
	if n.ipv6Only() {
		prefixes, gateways = prefixes[1:], gateways[1:]
	}
	var networks []string
	for i, address := range n.addresses() {
		networks = append(networks, address+prefixes[i])
	}
	if err := setUp(inside, eth0, networks...); err != nil {
		return err
	}
	for _, gateway := range gateways {
		if err := inside.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.ParseIP(gateway)}); err != nil {
			return err
		}
	}
	return nil
}

// route adds routes to this node's pods here and on the other nodes, and to the other nodes' pods
// on this one.
func (n *Node) route(inside *netlink.Handle, others []*Node) error {
	here, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer here.Close()
	if err := n.routeToPods(here, false); err != nil {
		return err
	}
	for _, other := range others {
		if other == n || other.pid() == 0 {
			continue
		}
		if err := other.routeToPods(inside, n.ipv6Only()); err != nil {
			return fmt.Errorf("from %s: %w", n.Name, err)
		}
		there, err := other.netlink()
		if err != nil {
			return err
		}
		err = n.routeToPods(there, other.ipv6Only())
		there.Close()
		if err != nil {
			return fmt.Errorf("from %s: %w", other.Name, err)
		}
	}
	return nil
}

// routeToPods adds a route to the node's pods by its address on the bridge, for each family that
// both sides have.
func (n *Node) routeToPods(from *netlink.Handle, ipv6Only bool) error {
	pods4, pods6 := podPrefixes(n.number)
	for _, via := range n.addresses() {
		gateway, pods := net.ParseIP(via), pods6
		if gateway.To4() != nil {
			pods = pods4
		}
		if pods == pods4 && ipv6Only {
			continue
		}
		_, destination, err := net.ParseCIDR(pods)
		if err != nil {
			return err
		}
		if err := from.RouteReplace(&netlink.Route{Dst: destination, Gw: gateway}); err != nil {
			return fmt.Errorf("route to %s by %s: %w", pods, via, err)
		}
	}
	return nil
}

// netlink opens a handle in the node's network namespace.
func (n *Node) netlink() (*netlink.Handle, error) {
	namespace, err := netns.GetFromPath(fmt.Sprintf("/proc/%d/ns/net", n.pid()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = namespace.Close() }()
	return netlink.NewHandleAt(namespace)
}

// setUp assigns addresses to a link, without duplicate address detection, and starts it.
func setUp(in *netlink.Handle, link netlink.Link, addresses ...string) error {
	const noDAD = 0x02 // IFA_F_NODAD
	for _, text := range addresses {
		address, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if address.IP.To4() == nil {
			address.Flags = noDAD
		}
		if err := in.AddrAdd(link, address); err != nil {
			return fmt.Errorf("address %s: %w", text, err)
		}
	}
	return in.LinkSetUp(link)
}

// forward makes the namespace of this process forward packets of both families.
func forward() error {
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/"+name, []byte("1"), 0); err != nil {
			return fmt.Errorf("forward packets: %w", err)
		}
	}
	return nil
}

// Unplug disconnects the node's cable: its eth0 keeps its addresses and routes, and loses its
// carrier. [Node.Plug] reconnects it.
func (n *Node) Unplug() error { return n.cable(netlink.LinkSetDown) }

// Plug reconnects the node's cable.
func (n *Node) Plug() error { return n.cable(netlink.LinkSetUp) }

// cable runs a function on the bridge's end of the node's cable.
func (n *Node) cable(do func(netlink.Link) error) error {
	link, err := netlink.LinkByName(n.outside())
	if err != nil {
		return fmt.Errorf("the cable of %s: %w", n.Name, err)
	}
	return do(link)
}

// outside returns the name of the other end of the node's eth0.
func (n *Node) outside() string { return "to-" + n.Name }
