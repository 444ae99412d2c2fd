// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/namespace"
)

// addressesOf returns the addresses of a live namespace outside the loopback interface; nil if it
// has none.
func addressesOf(ns *interception.Netns) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	err := namespace.Run(ns.File(), func() error {
		interfaces, err := net.Interfaces()
		for _, i := range interfaces {
			if i.Flags&net.FlagLoopback != 0 || err != nil {
				continue
			}
			var addresses []net.Addr
			addresses, err = i.Addrs()
			for _, address := range addresses {
				if prefix, bad := netip.ParsePrefix(address.String()); bad == nil && prefix.Addr().IsGlobalUnicast() {
					prefixes = append(prefixes, prefix)
				}
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the addresses in %s: %w", ns, err)
	}
	return prefixes, nil
}
