// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// addressesOf returns the addresses of a namespace.
func addressesOf(in *interception.Netns) (own map[netip.Addr]bool, err error) {
	var all []net.Addr
	if err := namespace.Run(in.File(), func() (err error) {
		all, err = net.InterfaceAddrs()
		return err
	}); err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", in, err)
	}
	own = map[netip.Addr]bool{}
	for _, one := range all {
		if prefix, is := one.(*net.IPNet); is {
			if address, valid := netip.AddrFromSlice(prefix.IP); valid {
				own[address.Unmap()] = true
			}
		}
	}
	return own, nil
}

// mtuOf returns the MTU of the interface that has an address.
func mtuOf(in *interception.Netns, address netip.Addr) (mtu int, err error) {
	err = namespace.Run(in.File(), func() error {
		links, err := net.Interfaces()
		for _, link := range links {
			all, failed := link.Addrs()
			if failed != nil {
				return failed
			}
			for _, one := range all {
				if prefix, is := one.(*net.IPNet); is && prefix.IP.Equal(address.AsSlice()) {
					mtu = link.MTU
				}
			}
		}
		return err
	})
	if err == nil && mtu == 0 {
		err = fmt.Errorf("no interface has the address %s", address)
	}
	if err != nil {
		return 0, fmt.Errorf("read the MTU of the proxy's interface in %s: %w", in, err)
	}
	return mtu, nil
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
		return fmt.Errorf("the route has no source address")
	})
	if err != nil {
		return source, fmt.Errorf("find the address of %s that reaches %s: %w", in, to, err)
	}
	return source, nil
}
