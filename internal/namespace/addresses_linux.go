// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"fmt"
	"net"
	"net/netip"
	"os"
)

// Addresses lists the addresses of all interfaces of a network namespace, without zones.
func Addresses(in *os.File) ([]netip.Addr, error) {
	var all []netip.Addr
	err := Run(in, func() error {
		addresses, err := net.InterfaceAddrs()
		for _, address := range addresses {
			if prefix, err := netip.ParsePrefix(address.String()); err == nil {
				all = append(all, prefix.Addr().Unmap())
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the addresses in %s: %w", in.Name(), err)
	}
	return all, nil
}
