// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// loopback is the link by which everything local goes.
const loopback interception.Interface = "lo"

// World is where packets are traced: one network namespace or more, each with all that decides
// about its packets. [Sidecar] makes the usual one; others are written as literals.
type World struct {
	// Namespaces are the network namespaces. There must be one at least, and their names must
	// differ.
	Namespaces []Namespace
}

// Namespace is a network namespace: a pod's. Its routes are implied by its links. The addresses of
// all links are local, and of loopback, for IPv4, all addresses of its prefixes too. What is not
// local goes by the link with the longest prefix around it, else by the first link beside lo that
// has an address of the family (for IPv6, one that isn't link-local).
//
// The plans stand in the namespace with all their objects: their links and addresses are there
// beside those of Links, their routes and policy rules beside the implied ones, their sysctls are
// set.
type Namespace struct {
	// Name names the namespace in outcomes.
	Name string
	// Links are the network interfaces, all of them up. One must be lo, as [Loopback] makes it.
	Links []Link
	// Listeners are the sockets that take connections.
	Listeners []Listener
	// Plans are the owners' rules, in the order in which a hook asks them where their priorities
	// are equal. In a kernel that is: the plan that was applied last comes first.
	Plans []*interception.Plan
	// LiveSets are the members of the plans' live sets, as far as they are known.
	LiveSets []LiveSet
	// Forwards says that what comes by a link and is not for the namespace goes on by another link
	// (net.ipv4.ip_forward, net.ipv6.conf.all.forwarding). A pod does so that has a virtual machine
	// or containers of its own behind a link.
	Forwards bool
}

// LiveSet says what is in a live set of a plan.
type LiveSet struct {
	// Owner and Name are the set's.
	Owner interception.Owner
	Name  interception.SetName
	// Members are all its members.
	Members interception.PrefixSet
}

// Link is a network interface that is up.
type Link struct {
	// Name is the interface's name, such as "eth0".
	Name interception.Interface
	// Addresses are the interface's addresses with their prefix lengths, such as 10.244.0.2/24, in
	// the order in which ip-address(8) lists them: it decides which one is a source, and which one
	// a redirected connection goes to.
	Addresses []netip.Prefix
}

// Loopback is the link lo with 127.0.0.1/8 and ::1/128, as the kernel makes it, and any further
// addresses.
func Loopback(further ...netip.Prefix) Link {
	standard := []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 8),
		netip.PrefixFrom(netip.IPv6Loopback(), 128),
	}
	return Link{Name: loopback, Addresses: slices.Concat(standard, further)}
}

// Listener is a socket that takes connections (TCP) or datagrams (UDP).
type Listener struct {
	// Name names the listener in outcomes, such as "application".
	Name string
	// Proxy says that it is the mesh's proxy that listens.
	Proxy bool
	// Protocol is TCP or UDP.
	Protocol interception.Protocol
	// Address is the local address it is bound to: the zero Addr for all addresses of both
	// families, 0.0.0.0 for all of IPv4, "::" for all of IPv6 (a socket with IPV6_V6ONLY).
	Address netip.Addr
	// Port is the port it is bound to.
	Port interception.Port
	// Transparent says that it has IP_TRANSPARENT (IPV6_TRANSPARENT), which [interception.TProxyTo]
	// asks for.
	Transparent bool
}

// link returns the link of that name.
func (n *Namespace) link(name interception.Interface) (*Link, bool) {
	for i, l := range n.Links {
		if l.Name == name {
			return &n.Links[i], true
		}
	}
	return nil, false
}

// listener returns the one that the kernel would choose: bound to just this address, else to all of
// its family, else to all.
func (n *Namespace) listener(protocol interception.Protocol, to netip.AddrPort) (Listener, bool) {
	for _, address := range []netip.Addr{to.Addr(), wildcard(to.Addr()), {}} {
		for _, l := range n.Listeners {
			if l.Protocol == protocol && uint16(l.Port) == to.Port() && l.Address == address {
				return l, true
			}
		}
	}
	return Listener{}, false
}

// wildcard is the unspecified address of the family of addr.
func wildcard(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// The errors of [Trace], to be told apart with errors.Is. They mean that the question makes no
// sense; whatever may befall a packet in a kernel is an [Outcome].
var (
	// ErrWorld means that the world could not exist. For an invalid plan in it, errors.Is(err,
	// interception.ErrPlan) holds too.
	ErrWorld = errors.New("invalid world")
	// ErrPacket means that the packet could not exist in the world, or is of a kind that is not
	// traced.
	ErrPacket = errors.New("invalid packet")
)

// SidecarOptions say what a pod with a sidecar looks like. The zero value is a pod with both
// families and no application.
type SidecarOptions struct {
	// Addresses are the addresses of eth0 with their prefix lengths, in the order of ip-address(8):
	// 10.244.0.2/24 and fd00:10:244::2/64 when nil.
	Addresses []netip.Prefix
	// Loopback are addresses of lo beside 127.0.0.1/8 and ::1/128.
	Loopback []netip.Prefix
	// Listeners are the sockets of the pod. For each port that the plan redirects to, a listener of
	// the proxy on all addresses, named "proxy-15001" with the port's number, is added unless there
	// is one on that port; a Transparent one where the plan hands over packets as they are.
	Listeners []Listener
}

// Sidecar derives the world of a plan that captures a pod for the proxy in it: one namespace called
// "pod" with the links lo and eth0, the plan, and the listeners of application and proxy. Without a
// plan (nil) it is a pod outside the mesh. The world is the caller's to change: other owners' plans
// go beside this one, into Namespaces[0].Plans. Addresses of the plan's own are there by the plan.
func Sidecar(plan *interception.Plan, o SidecarOptions) World {
	addresses := o.Addresses
	if addresses == nil {
		addresses = []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 0, 2}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 4: 0x02, 5: 0x44, 15: 2}), 64),
		}
	}
	pod := Namespace{
		Name:      "pod",
		Links:     []Link{Loopback(o.Loopback...), {Name: "eth0", Addresses: addresses}},
		Listeners: slices.Clone(o.Listeners),
	}
	if plan != nil {
		pod.Plans = []*interception.Plan{plan}
		pod.addProxy(plan)
	}
	return World{Namespaces: []Namespace{pod}}
}

// addProxy adds the listeners that the plan sends connections to and that are not there.
func (n *Namespace) addProxy(plan *interception.Plan) {
	given := len(n.Listeners)
	for _, rule := range plan.Rules() {
		port, transparent := interception.Port(0), false
		switch action := rule.Action.(type) {
		case interception.RedirectTo:
			port = action.Port
		case interception.TProxyTo:
			port, transparent = action.Port, true
		default:
			continue
		}
		protocol := rule.Match.L4.Protocol()
		at := slices.IndexFunc(n.Listeners, func(l Listener) bool { return l.Protocol == protocol && l.Port == port })
		if at < 0 {
			at = len(n.Listeners)
			n.Listeners = append(n.Listeners, Listener{Name: fmt.Sprintf("proxy-%d", port), Proxy: true, Protocol: protocol, Port: port})
		}
		if at >= given && transparent {
			n.Listeners[at].Transparent = true
		}
	}
}
