// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// loopback is the link that carries all local traffic.
const loopback interception.Interface = "lo"

// World is one or more network namespaces, each with everything that decides about its packets.
// [Sidecar] returns the usual one; write others as literals.
type World struct {
	// Namespaces are the network namespaces: at least one, with distinct names.
	Namespaces []Namespace
	// Wires join links of the namespaces, for [Follow]. A plan's [interception.Veth] needs none: it
	// is a wire to its peer, which is made with it, in the namespace whose name is the veth's label.
	Wires []Wire
}

// Namespace is a network namespace: a pod's. Its links imply its routes. The addresses of all links
// are local, and so are, for IPv4, all addresses in the prefixes of loopback. Other traffic leaves
// by the link with the longest matching prefix, else by the first link except lo that has an
// address of the family (for IPv6, one that is not link-local).
//
// The plans apply with all their objects: their links and addresses join those of Links, their
// routes and policy rules join the implied ones, and their sysctls are set.
type Namespace struct {
	// Name names the namespace in outcomes.
	Name string
	// Links are the network interfaces, all of them up. One must be lo, as [Loopback] returns it.
	Links []Link
	// Listeners are the sockets that take connections.
	Listeners []Listener
	// Plans are the owners' rules. Where priorities are equal, a hook evaluates them in this order.
	// In a kernel, the plan that was applied last comes first.
	Plans []*interception.Plan
	// LiveSets are the known members of the plans' live sets.
	LiveSets []LiveSet
	// Forwards reports whether packets that come in by one link and are not local leave by another,
	// as in a pod with a virtual machine or containers on a link of its own. Sysctls say so for one
	// family.
	Forwards bool
	// Routes are those of other programs than the plans' owners.
	Routes []interception.Route
	// Sysctls are the values that the namespace's settings have before the plans change them, by
	// the keys of [interception.Sysctl]: ipv4/ip_forward, ipv6/conf/all/forwarding,
	// ipv4/tcp_fwmark_accept and, in ipv4/conf of a link or of all, rp_filter, src_valid_mark,
	// accept_local and route_localnet. Others are 0.
	Sysctls map[string]int
}

// LiveSet lists the members of a plan's live set.
type LiveSet struct {
	// Owner and Name identify the set.
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
	// the order of ip-address(8). The order decides which one becomes a source and which one a
	// redirected connection goes to.
	Addresses []netip.Prefix
	// VXLAN or Geneve makes the link a tunnel. A link with both is invalid.
	VXLAN  *interception.VXLAN
	Geneve *interception.Geneve
}

// Loopback returns the link lo with the kernel's 127.0.0.1/8 and ::1/128, and any further
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
	// Proxy reports whether the listener is the mesh's proxy.
	Proxy bool
	// Protocol is TCP or UDP.
	Protocol interception.Protocol
	// Address is the local address it is bound to: the zero Addr for all addresses of both
	// families, 0.0.0.0 for all of IPv4, "::" for all of IPv6 (a socket with IPV6_V6ONLY).
	Address netip.Addr
	// Port is the port it is bound to.
	Port interception.Port
	// Transparent reports whether the listener has IP_TRANSPARENT (IPV6_TRANSPARENT), which
	// [interception.TProxyTo] requires.
	Transparent bool
	// Mark is the listener's SO_MARK. The sockets that it accepts inherit it, so [Outcome.Answer]
	// carries it (include/net/inet_sock.h, inet_request_mark). 0 is no mark: the answer then has
	// none or, where a plan sets net.ipv4.tcp_fwmark_accept, that of the opening packet.
	Mark interception.Mark
}

// link returns the link with the name.
func (n *Namespace) link(name interception.Interface) (*Link, bool) {
	for i, l := range n.Links {
		if l.Name == name {
			return &n.Links[i], true
		}
	}
	return nil, false
}

// listener returns the listener that the kernel would choose: one bound to exactly this address,
// else to all of its family, else to all.
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

// wildcard returns the unspecified address of the family of addr.
func wildcard(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// The errors of [Trace]; use errors.Is. They mean that the question makes no sense; whatever can
// happen to a packet in a kernel is an [Outcome].
var (
	// ErrWorld means that the world could not exist. For an invalid plan in it, errors.Is(err,
	// interception.ErrPlan) holds too.
	ErrWorld = errors.New("invalid world")
	// ErrPacket means that the packet could not exist in the world, is of a kind that Trace does not
	// support, or is written in a form that ParsePacket does not read.
	ErrPacket = errors.New("invalid packet")
)

// SidecarOptions describe a pod with a sidecar. The zero value is a pod with both families and no
// application.
type SidecarOptions struct {
	// Addresses are the addresses of eth0 with their prefix lengths, in the order of ip-address(8):
	// 10.244.0.2/24 and fd00:10:244::2/64 when nil.
	Addresses []netip.Prefix
	// Loopback are addresses of lo in addition to 127.0.0.1/8 and ::1/128.
	Loopback []netip.Prefix
	// Listeners are the sockets of the pod. For each port that the plan redirects to and no
	// listener has, [Sidecar] adds a proxy listener on all addresses, named "proxy-15001" after the
	// port. It is Transparent where the plan uses TPROXY.
	Listeners []Listener
}

// Sidecar returns the world of a plan that captures a pod for its sidecar proxy: one namespace
// called "pod" with the links lo and eth0, the plan, and the listeners of application and proxy.
// Without a plan (nil) the pod is un-meshed. The caller may change the world, for example append
// other owners' plans to Namespaces[0].Plans. The plan itself brings the addresses that it adds.
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

// addProxy adds a listener for every port that the plan redirects to and no listener has.
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
