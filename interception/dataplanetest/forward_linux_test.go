// SPDX-License-Identifier: Apache-2.0

package dataplanetest_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/testing/sample"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

var (
	worlds    = flag.Int("worlds", 100, "how many random worlds with forwarding")
	firstSeed = flag.Uint64("world-seed", 1, "the seed of the first random world")
)

// router is a namespace that forwards between client and server by two wires to each. A third wire
// joins client and server directly: what is sent by it is never touched.
type router struct {
	t      *testing.T
	spaces map[string]*sandbox.Namespace
	netns  *interception.Netns
	world  trace.World
	fence  [2]int // sockets of the client and of the server, at the third wire
	port   uint16
	taken  map[netip.Addr]int // sockets of the server
}

func newRouter(t *testing.T) *router {
	t.Helper()
	r := &router{t: t, spaces: map[string]*sandbox.Namespace{}, taken: map[netip.Addr]int{}, port: 20000}
	for _, name := range []string{"client", "router", "server"} {
		space, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), name))
		r.must(err)
		t.Cleanup(func() { _ = space.Close() })
		r.spaces[name] = space
		r.world.Namespaces = append(r.world.Namespaces, trace.Namespace{Name: name, Links: []trace.Link{trace.Loopback()}})
	}
	for i, ends := range [][4]string{
		{"client", "eth0", "router", "c0"},
		{"client", "eth1", "router", "c1"},
		{"server", "eth0", "router", "s0"},
		{"server", "eth1", "router", "s1"},
		{"client", "f0", "server", "f0"},
	} {
		r.must(sandbox.Connect(t.Context(), sandbox.End{Namespace: r.spaces[ends[0]], Name: ends[1]}, sandbox.End{Namespace: r.spaces[ends[2]], Name: ends[3]}))
		wire := trace.Wire{}
		for j := range 2 {
			address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i + 1), 0, byte(2 - j)}), 30)
			r.address(ends[2*j], ends[2*j+1], address)
			wire.Ends = append(wire.Ends, trace.WireEnd{Namespace: ends[2*j], Link: interception.Interface(ends[2*j+1])})
		}
		r.world.Wires = append(r.world.Wires, wire)
	}
	r.address("server", "lo", netip.MustParsePrefix("198.51.100.7/32"))
	r.route("client", "0.0.0.0/0", "10.1.0.1", "eth0")
	r.route("server", "0.0.0.0/0", "10.3.0.1", "eth0")
	r.route("router", "198.51.100.0/24", "10.3.0.2", "s0")
	r.must(r.spaces["router"].Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("0"), 0) }))
	netns, err := interception.OpenNetns(r.spaces["router"].Path(), interception.NetnsOptions{})
	r.must(err)
	t.Cleanup(func() { _ = netns.Close() })
	r.netns = netns
	for i, end := range []string{"client 10.5.0.2", "server 10.5.0.1"} {
		var name, address string
		_, err := fmt.Sscan(end, &name, &address)
		r.must(err)
		r.fence[i] = r.socket(name, netip.AddrPortFrom(netip.MustParseAddr(address), 7))
	}
	for _, address := range []string{"10.3.0.2", "10.4.0.2", "198.51.100.7"} {
		at := netip.AddrPortFrom(netip.MustParseAddr(address), 9000)
		r.taken[at.Addr()] = r.socket("server", at)
		server := &r.world.Namespaces[2]
		server.Listeners = append(server.Listeners, trace.Listener{Name: address, Protocol: interception.ProtocolUDP, Address: at.Addr(), Port: 9000})
	}
	return r
}

func (r *router) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *router) space(name string) *trace.Namespace {
	return &r.world.Namespaces[slices.IndexFunc(r.world.Namespaces, func(n trace.Namespace) bool { return n.Name == name })]
}

func (r *router) address(name, link string, address netip.Prefix) {
	r.t.Helper()
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
	route := interception.Route{Destination: netip.MustParsePrefix(to), Gateway: netip.MustParseAddr(by), Device: interception.Interface(link)}
	r.must(r.spaces[name].Netlink().RouteAdd(&netlink.Route{Dst: sandbox.IPNet(route.Destination), Gw: route.Gateway.AsSlice()}))
	n := r.space(name)
	n.Routes = append(n.Routes, route)
}

// socket returns a UDP socket in a namespace.
func (r *router) socket(name string, at netip.AddrPort) int {
	r.t.Helper()
	var socket int
	r.must(r.spaces[name].Do(func() (err error) {
		if socket, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		return unix.Bind(socket, sockaddr(at))
	}))
	r.t.Cleanup(func() { _ = unix.Close(socket) })
	return socket
}

func sockaddr(at netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
}

// settle returns when the kernel has done with all that was sent before: on one CPU it passes
// packets on in their order, one namespace after the other, and each datagram over the third wire
// takes its turn.
func (r *router) settle() {
	r.t.Helper()
	byte1 := make([]byte, 1)
	for range 12 {
		r.must(unix.Sendto(r.fence[0], byte1, 0, sockaddr(netip.MustParseAddrPort("10.5.0.1:7"))))
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

// received returns the sender of the datagram that a socket has; false if it has none.
func (r *router) received(socket int) (netip.AddrPort, bool) {
	_, from, err := unix.Recvfrom(socket, make([]byte, 8), 0)
	four, is := from.(*unix.SockaddrInet4)
	if err != nil || !is {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(netip.AddrFrom4(four.Addr), uint16(four.Port)), true
}

// TestForwardingAgreesWithTrace sends real datagrams through random routers, and compares where
// they and their answers arrive with package trace.
func TestForwardingAgreesWithTrace(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	r := newRouter(t)
	r.must(onOneCPU())
	d, err := nftables.New(nftables.Options{})
	r.must(err)
	kinds := map[string]int{}
	for i := range *worlds {
		seed := *firstSeed + uint64(i)
		c := sample.Seeded(seed)
		plan := randomPlan(t, c)
		if err := d.Apply(t.Context(), r.netns, plan); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, plan)
		}
		world := r.world
		world.Namespaces = slices.Clone(world.Namespaces)
		world.Namespaces[1].Plans = []*interception.Plan{plan}
		for range 6 {
			kinds[r.compare(world, c, seed)]++
		}
		r.must(d.Remove(t.Context(), r.netns, plan.Owner))
		if t.Failed() {
			t.Fatalf("seed %d: %s", seed, plan)
		}
	}
	for _, kind := range []string{"back: delivered", "back: dropped", "there: dropped no cause"} {
		if *worlds >= 100 && kinds[kind] == 0 {
			t.Errorf("no datagram is %q: these worlds test too little", kind)
		}
	}
	t.Logf("%d worlds: %v", *worlds, kinds)
}

// onOneCPU keeps the thread on one of the CPUs that it may use.
func onOneCPU() error {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	return unix.SchedSetaffinity(0, &one)
}

// forget removes the neighbours that all namespaces have found, and the questions that are still
// open: the kernel asks only once a second.
func (r *router) forget() {
	r.t.Helper()
	for _, space := range r.spaces {
		all, err := space.Netlink().NeighList(0, unix.AF_INET)
		r.must(err)
		for _, n := range all {
			if n.State&unix.NUD_NOARP == 0 {
				_ = space.Netlink().NeighDel(&n) // it may be gone
			}
		}
	}
}

// compare sends a datagram and, if it arrives, an answer.
func (r *router) compare(world trace.World, c sample.Choices, seed uint64) (kind string) {
	r.t.Helper()
	r.forget()
	r.port++
	src := netip.AddrPortFrom(netip.MustParseAddr(sample.Pick(c, "10.1.0.2", "10.1.0.2", "10.2.0.2")), r.port)
	dst := netip.AddrPortFrom(netip.MustParseAddr(sample.Pick(c, "198.51.100.7", "198.51.100.7", "198.51.100.9", "10.3.0.2", "10.4.0.2")), 9000)
	there, err := trace.Follow(world, trace.Packet{From: trace.Socket{Namespace: "client"}, Protocol: interception.ProtocolUDP, Src: src, Dst: dst}, nil)
	r.must(err)
	end := there.End()
	socket := r.socket("client", src)
	_ = unix.Sendto(socket, []byte{1}, 0, sockaddr(dst)) // that it is lost, is for the receiver to notice
	r.settle()
	var at, from netip.AddrPort
	for address, taker := range r.taken {
		if sender, took := r.received(taker); took {
			at, from = netip.AddrPortFrom(address, 9000), sender
		}
	}
	want, wantFrom := netip.AddrPort{}, netip.AddrPort{}
	if end.Verdict == trace.Delivered {
		want, wantFrom = end.Header.Dst, end.Header.Src
	}
	if at != want || from != wantFrom {
		r.t.Errorf("seed %d: arrives at %v from %v, want %v from %v\n%s", seed, at, from, want, wantFrom, there.Report())
		return "differs"
	}
	if !at.IsValid() {
		return "there: " + end.Verdict.String() + " " + end.Cause.String()
	}
	back, err := trace.Follow(world, end.Answer(trace.Socket{Namespace: "server"}), there.Flows)
	r.must(err)
	_ = unix.Sendto(r.taken[at.Addr()], []byte{2}, 0, sockaddr(from)) // likewise
	r.settle()
	answered, heard := r.received(socket)
	wantAnswer := back.End().Verdict == trace.Delivered && back.End().Socket != nil
	if heard != wantAnswer || heard && answered != back.End().Header.Src {
		r.t.Errorf("seed %d: answered by %v: %v, want %v\n%s%s", seed, answered, heard, wantAnswer, there.Report(), back.Report())
	}
	return "back: " + back.End().Verdict.String()
}
