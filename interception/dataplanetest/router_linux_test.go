// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// kindOfRouter is what a router forwards, and whether by tunnels. Its addresses are written as
// those of IPv4.
type kindOfRouter struct {
	family  interception.Family
	tunnels bool
}

// String returns "IPv4 by wires", say.
func (k kindOfRouter) String() string {
	return k.family.String() + map[bool]string{false: " by wires", true: " by tunnels"}[k.tunnels]
}

// addr returns an address in the router's family. An IPv6 address ends in the bytes of the text.
func (k kindOfRouter) addr(text string) netip.Addr {
	four := netip.MustParseAddr(text).As4()
	if k.family == interception.IPv4 {
		return netip.AddrFrom4(four)
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 12: four[0], 13: four[1], 14: four[2], 15: four[3]})
}

func (k kindOfRouter) prefix(text string) netip.Prefix {
	four := netip.MustParsePrefix(text)
	switch {
	case k.family == interception.IPv4:
		return four
	case four.Bits() == 0:
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	default:
		return netip.PrefixFrom(k.addr(four.Addr().String()), 96+four.Bits())
	}
}

// router is a namespace that forwards between client and server, by two links to each. Another wire
// joins client and server directly: what is sent by it is never touched.
type router struct {
	kindOfRouter

	t      *testing.T
	spaces map[string]*sandbox.Namespace
	netns  *interception.Netns
	world  trace.World
	fence  [2]int // sockets of the client and of the server, at the wire between them
	port   uint16 // of the client's last packet
	ends   map[string]*talker
	// connections is a handle for connection tracking in the router.
	connections *netlink.Handle
}

// serverAddresses are those at which the server takes packets.
func serverAddresses() []string {
	return []string{"10.3.0.2", "10.4.0.2", "198.51.100.7", "198.51.100.8"}
}

func newRouter(t *testing.T, kind kindOfRouter) *router {
	t.Helper()
	r := &router{kindOfRouter: kind, t: t, spaces: map[string]*sandbox.Namespace{}, port: 20000, ends: map[string]*talker{}}
	for _, name := range []string{"client", "router", "server"} {
		r.addSpace(name)
	}
	r.wire("client", "eth0", "router", "c0", 1)
	r.wire("server", "eth0", "router", "s0", 3)
	r.wire("client", "f0", "server", "f0", 5)
	if kind.tunnels {
		r.tunnel("client", "eth1", "c1", 1, 2)
		r.tunnel("server", "eth1", "s1", 3, 4)
	} else {
		r.wire("client", "eth1", "router", "c1", 2)
		r.wire("server", "eth1", "router", "s1", 4)
	}
	r.address("server", "lo", "198.51.100.7/32")
	r.address("server", "lo", "198.51.100.8/32")
	r.route("client", "0.0.0.0/0", "10.1.0.1", "eth0")
	r.route("client", "198.51.100.8/32", "10.2.0.1", "eth1")
	r.route("server", "0.0.0.0/0", "10.3.0.1", "eth0")
	r.route("server", "10.2.0.0/30", "10.4.0.1", "eth1")
	r.route("router", "198.51.100.0/24", "10.3.0.2", "s0")
	open, err := interception.OpenNetns(r.spaces["router"].Path(), interception.NetnsOptions{})
	r.must(err)
	t.Cleanup(func() { _ = open.Close() })
	r.netns = open
	r.connections, err = netlink.NewHandleAt(netns.NsHandle(r.spaces["router"].File().Fd()), unix.NETLINK_NETFILTER)
	r.must(err)
	t.Cleanup(r.connections.Close)
	r.fence[0] = r.bound("client", unix.SOCK_DGRAM, 0, netip.AddrPortFrom(r.addr("10.5.0.2"), 7))
	r.fence[1] = r.bound("server", unix.SOCK_DGRAM, 0, netip.AddrPortFrom(r.addr("10.5.0.1"), 7))
	r.ends["client"], r.ends["server"] = newTalker(r, "client"), newTalker(r, "server")
	for _, text := range serverAddresses() {
		r.ends["server"].listen(netip.AddrPortFrom(r.addr(text), routedPort))
		server := r.space("server")
		for _, protocol := range []interception.Protocol{interception.ProtocolUDP, interception.ProtocolTCP} {
			server.Listeners = append(server.Listeners, trace.Listener{Name: text, Protocol: protocol, Address: r.addr(text), Port: routedPort})
		}
	}
	return r
}

func (r *router) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// addSpace makes a namespace which neither checks sources nor learns routes from others.
func (r *router) addSpace(name string) {
	r.t.Helper()
	space, err := sandbox.NewNamespace(filepath.Join(r.t.TempDir(), name))
	r.must(err)
	r.t.Cleanup(func() { _ = space.Close() })
	r.spaces[name] = space
	r.must(space.Do(func() (err error) {
		for name, value := range map[string]string{
			"ipv4/conf/%s/rp_filter": "0", "ipv4/conf/%s/accept_redirects": "0", "ipv6/conf/%s/accept_redirects": "0",
			"ipv6/conf/%s/accept_dad": "0", "ipv4/tcp_synack_retries": "0", // a lost answer is not sent again
		} {
			for _, of := range []string{"all", "default"} {
				if strings.Contains(name, "%s") {
					err = errors.Join(err, os.WriteFile("/proc/sys/net/"+fmt.Sprintf(name, of), []byte(value), 0))
				} else {
					err = errors.Join(err, os.WriteFile("/proc/sys/net/"+name, []byte(value), 0))
				}
			}
		}
		return err
	}))
	r.world.Namespaces = append(r.world.Namespaces, trace.Namespace{Name: name, Links: []trace.Link{trace.Loopback()}})
}

// wire joins two links, with addresses of the subnet with the number.
func (r *router) wire(a, linkOfA, b, linkOfB string, subnet int) {
	r.t.Helper()
	r.must(sandbox.Connect(r.t.Context(), sandbox.End{Namespace: r.spaces[a], Name: linkOfA}, sandbox.End{Namespace: r.spaces[b], Name: linkOfB}))
	r.address(a, linkOfA, fmt.Sprintf("10.%d.0.2/30", subnet))
	r.address(b, linkOfB, fmt.Sprintf("10.%d.0.1/30", subnet))
	r.world.Wires = append(r.world.Wires, trace.Wire{Ends: []trace.WireEnd{
		{Namespace: a, Link: interception.Interface(linkOfA)}, {Namespace: b, Link: interception.Interface(linkOfB)},
	}})
}

// tunnelPort is the UDP port of the tunnels.
const tunnelPort = 4789

// tunnel makes both ends of a tunnel from a namespace to the router, over the wire of one subnet
// and with addresses of another.
func (r *router) tunnel(from, linkOfFrom, linkOfRouter string, over, subnet int) {
	r.t.Helper()
	for i, end := range [][2]string{{"router", linkOfRouter}, {from, linkOfFrom}} {
		vxlan := &interception.VXLAN{VNI: uint32(subnet), Remote: r.addr(fmt.Sprintf("10.%d.0.%d", over, 2-i)), Port: tunnelPort}
		r.must(r.spaces[end[0]].Netlink().LinkAdd(&netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: end[1]}, VxlanId: int(vxlan.VNI), Group: vxlan.Remote.AsSlice(), Port: int(vxlan.Port),
		}))
		r.must(r.spaces[end[0]].SetUp(end[1]))
		r.address(end[0], end[1], fmt.Sprintf("10.%d.0.%d/30", subnet, 1+i))
		n := r.space(end[0])
		n.Links[len(n.Links)-1].VXLAN = vxlan
	}
}

func (r *router) space(name string) *trace.Namespace {
	return &r.world.Namespaces[slices.IndexFunc(r.world.Namespaces, func(n trace.Namespace) bool { return n.Name == name })]
}

// address adds an address to a link, which joins the namespace's.
func (r *router) address(name, link, text string) {
	r.t.Helper()
	address := r.prefix(text)
	r.must(r.spaces[name].AddAddress(r.t.Context(), link, address))
	n := r.space(name)
	at := slices.IndexFunc(n.Links, func(l trace.Link) bool { return string(l.Name) == link })
	if at < 0 {
		at = len(n.Links)
		n.Links = append(n.Links, trace.Link{Name: interception.Interface(link)})
	}
	n.Links[at].Addresses = append(n.Links[at].Addresses, address)
}

func (r *router) route(name, to, by, link string) {
	r.t.Helper()
	route := interception.Route{Destination: r.prefix(to), Gateway: r.addr(by), Device: interception.Interface(link)}
	r.must(r.spaces[name].Netlink().RouteAdd(&netlink.Route{Dst: sandbox.IPNet(route.Destination), Gw: route.Gateway.AsSlice()}))
	n := r.space(name)
	n.Routes = append(n.Routes, route)
}

// settle returns when the kernel has done with all that was sent before: on one CPU it passes
// packets on in their order, one namespace after the other, and each datagram between client and
// server takes its turn.
func (r *router) settle() {
	r.t.Helper()
	turns, byte1 := 12, make([]byte, 1)
	if r.tunnels {
		turns = 32 // neighbours are asked for within tunnels, too
	}
	for range turns {
		r.must(unix.Sendto(r.fence[0], byte1, 0, sockaddr(netip.AddrPortFrom(r.addr("10.5.0.1"), 7))))
		for {
			_, _, err := unix.Recvfrom(r.fence[1], byte1, 0)
			if err == nil {
				break
			}
			if !errors.Is(err, syscall.EAGAIN) {
				r.must(err)
			}
			runtime.Gosched()
		}
	}
}

// forget removes the neighbours that all namespaces have found, and the questions that are still
// open: the kernel asks only once a second. It sends errors about the packets that waited for an
// answer, and for these it asks again. With tunnels forget removes what connection tracking knows,
// too: one question is like another.
func (r *router) forget() {
	r.t.Helper()
	if r.forgetNeighbours() {
		r.settle()
		r.forgetNeighbours()
	}
	if r.tunnels {
		r.must(r.connections.ConntrackTableFlush(netlink.ConntrackTable))
	}
}

// forgetNeighbours reports whether questions were open.
func (r *router) forgetNeighbours() (asked bool) {
	r.t.Helper()
	family := unix.AF_INET
	if r.family == interception.IPv6 {
		family = unix.AF_INET6
	}
	for _, space := range r.spaces {
		all, err := space.Netlink().NeighList(0, family)
		r.must(err)
		for _, n := range all {
			asked = asked || n.State == unix.NUD_INCOMPLETE
			if n.State&unix.NUD_NOARP == 0 {
				_ = space.Netlink().NeighDel(&n) // it may be gone
			}
		}
	}
	return asked
}
