// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/route"
)

// The states of TCP connections that are open (linux/netfilter/nf_conntrack_tcp.h): from the first
// packet to the last one.
const (
	firstOpenState = 1 // SYN_SENT
	lastOpenState  = 6 // LAST_ACK
)

// eachConnection calls a function with each open TCP connection of a family that a namespace
// tracks. A list that changed meanwhile may lack some.
func eachConnection(in *interception.Netns, family interception.Family, do func(connection)) error {
	of := netlink.InetFamily(unix.AF_INET)
	if family == interception.IPv6 {
		of = unix.AF_INET6
	}
	err := namespace.Run(in.File(), func() error {
		all, err := netlink.ConntrackTableList(netlink.ConntrackTable, of)
		for _, flow := range all {
			tcp, is := flow.ProtoInfo.(*netlink.ProtoInfoTCP)
			if !is || tcp.State < firstOpenState || tcp.State > lastOpenState {
				continue
			}
			from, _ := netip.AddrFromSlice(flow.Forward.SrcIP) // the zero Addr is no pod's
			to, _ := netip.AddrFromSlice(flow.Forward.DstIP)
			answers, _ := netip.AddrFromSlice(flow.Reverse.SrcIP)
			do(connection{from.Unmap(), to.Unmap(), answers.Unmap(), interception.Mark(flow.Mark)})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("list the connections that %s tracks: %w", in, err)
	}
	return nil
}

// removeSame removes tunnels, routes and policy rules that are the same as these.
func removeSame(in *interception.Netns, objects []interception.Object) error {
	socket, err := route.Dial(kernel.Of(in.File()))
	if err != nil {
		return err
	}
	defer socket.Close()
	return socket.RemoveSame(objects)
}

// othersOf returns the links, addresses, routes and policy rules of a namespace that are not the
// owner's.
func othersOf(in *interception.Netns, owner interception.Owner) ([]interception.Object, error) {
	socket, err := route.Dial(kernel.Of(in.File()))
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	all, err := socket.Others(route.Protocols{}.Owner(owner))
	if err != nil {
		return nil, fmt.Errorf("look at what other programs have in %s: %w", in, err)
	}
	return all, nil
}
