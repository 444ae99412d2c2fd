// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/interception"
)

// link returns a link in the form of plans, and what it has beyond that. A link of a kind that
// plans do not have is a dummy with more.
func (f found) link(have netlink.Link) (l interception.Link, more []string) {
	l = interception.Link{Name: nameOf(have), MTU: have.Attrs().MTU, HardwareAddr: hardwareAddrOf(have)}
	switch have := have.(type) {
	case *netlink.Dummy:
	case *netlink.Geneve:
		remote, _ := netip.AddrFromSlice(have.Remote)
		l.Geneve = &interception.Geneve{VNI: have.ID, Remote: remote, Port: interception.Port(have.Dport)}
	case *netlink.Vxlan:
		remote, _ := netip.AddrFromSlice(have.Group)
		l.VXLAN = &interception.VXLAN{VNI: uint32(have.VxlanId), Remote: remote, Port: interception.Port(have.Port)}
		more = extrasOf(have)
	case *netlink.Veth:
		l.Veth, more = f.veth(have)
	default:
		more = []string{fmt.Sprintf("of type %q", have.Type())}
	}
	return l, more
}

// extrasOf returns what a VXLAN tunnel has that no tunnel of a plan has, and that the kernel cannot
// change. Whether it learns addresses can be changed.
func extrasOf(l *netlink.Vxlan) []string {
	var more []string
	for _, extra := range []struct {
		is   bool
		text string
	}{
		{len(l.SrcAddr) > 0, "with a local address"},
		{l.VtepDevIndex != 0, "bound to an interface"},
		{l.FlowBased, "without a remote end of its own"},
		{l.GBP, "with group policies"},
		{l.Proxy, "that answers for neighbours"},
		{l.RSC || l.L2miss || l.L3miss, "that asks for routes"},
		{l.TTL != 0 || l.TOS != 0, "with a TTL or a TOS of its own"},
	} {
		if extra.is {
			more = append(more, extra.text)
		}
	}
	return more
}

// seen returns what Observe reports of a link of the owner.
func (f found) seen(have netlink.Link) (l interception.Link, more []string) {
	l, more = f.link(have)
	if learns(have) {
		more = append(more, "that learns addresses")
	}
	if !isUp(have) {
		more = append(more, "down")
	}
	if have.Attrs().Alias == "" {
		more = append(more, "without the alias of its owner")
	}
	if peer := f.peer(have); peer != nil {
		if !isUp(peer) {
			more = append(more, "whose other end is down")
		}
		if mtu := peer.Attrs().MTU; mtu != l.MTU {
			more = append(more, fmt.Sprintf("whose other end has the MTU %d", mtu))
		}
	}
	return l, more
}

// fixed says in what an existing link differs from the plan's that the kernel cannot change; ""
// if it can change all.
func (f found) fixed(have netlink.Link, l interception.Link) string {
	was, more := f.link(have)
	old, wanted := farEnd(was), farEnd(l)
	switch {
	case have.Type() != kindOf(l):
		return fmt.Sprintf("it is of type %s, and the plan wants type %s", have.Type(), kindOf(l))
	case len(more) > 0:
		return "it is one " + strings.Join(more, ", ")
	case old.vni != wanted.vni:
		return fmt.Sprintf("its VNI is %d, and the plan wants %d", old.vni, wanted.vni)
	case old.port != wanted.port:
		return fmt.Sprintf("its port is %d, and the plan wants %d", old.port, wanted.port)
	case old.remote.Is4() != wanted.remote.Is4():
		return fmt.Sprintf("its remote end is %s, and %s of the plan is of another family", old.remote, wanted.remote)
	case l.Veth != nil && *was.Veth != *l.Veth:
		return fmt.Sprintf("its other end is %s in the namespace labelled %q, and the plan wants %s in %q",
			was.Veth.Peer, was.Veth.Namespace, l.Veth.Peer, l.Veth.Namespace)
	}
	return ""
}

// hardwareAddrOf returns a link's Ethernet address, or "".
func hardwareAddrOf(l netlink.Link) string {
	if have := l.Attrs().HardwareAddr; len(have) == 6 {
		return have.String()
	}
	return ""
}
