// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package nodemode

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

func addressesOf(*interception.Netns) (map[netip.Addr]bool, error) {
	return nil, interception.ErrUnsupported
}

func mtuOf(*interception.Netns, netip.Addr) (int, error) { return 0, interception.ErrUnsupported }

func sourceTo(*interception.Netns, netip.Addr) (netip.Addr, error) {
	return netip.Addr{}, interception.ErrUnsupported
}
