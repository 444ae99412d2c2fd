// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// addressesOf returns the addresses of a namespace.
func addressesOf(in *interception.Netns) (own map[netip.Addr]bool, err error) {
	own = map[netip.Addr]bool{}
	if err := namespace.Run(in.File(), func() error {
		return eachAddress(func(address netip.Addr, _ int) { own[address] = true })
	}); err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", in, err)
	}
	return own, nil
}

// mtuOf returns the MTU of the interface that has an address.
func mtuOf(in *interception.Netns, address netip.Addr) (mtu int, err error) {
	err = namespace.Run(in.File(), func() error {
		index := 0
		if err := eachAddress(func(own netip.Addr, of int) {
			if own == address {
				index = of
			}
		}); err != nil {
			return err
		}
		link, err := netlink.LinkByIndex(index)
		if err != nil {
			return fmt.Errorf("no interface has the address %s: %w", address, err)
		}
		mtu = link.Attrs().MTU
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read the MTU of the proxy's interface in %s: %w", in, err)
	}
	return mtu, nil
}

// mostDumps is how often the agent asks again for a list of addresses that changed while the kernel
// wrote it, as it does when pods come and go.
const mostDumps = 16

// eachAddress calls a function with each address of the thread's namespace, and the index of its
// interface.
func eachAddress(do func(address netip.Addr, index int)) error {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	for range mostDumps {
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
		all, err = netlink.AddrList(nil, netlink.FAMILY_ALL)
	}
	for _, one := range all {
		if address, valid := netip.AddrFromSlice(one.IP); valid {
			do(address.Unmap(), one.LinkIndex)
		}
	}
	return err
}

// sourceTo returns the address with which a namespace reaches another one.
func sourceTo(in *interception.Netns, to netip.Addr) (source netip.Addr, err error) {
	err = namespace.Run(in.File(), func() error {
		routes, err := netlink.RouteGet(to.AsSlice())
		if err != nil {
			return err
		}
		for _, route := range routes {
			if from, valid := netip.AddrFromSlice(route.Src); valid {
				source = from.Unmap()
				return nil
			}
		}
		return errors.New("the route has no source address")
	})
	if err != nil {
		return source, fmt.Errorf("find the address of %s that reaches %s: %w", in, to, err)
	}
	return source, nil
}
