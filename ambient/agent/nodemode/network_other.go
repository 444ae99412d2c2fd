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

func eachConnection(*interception.Netns, interception.Family, func(connection)) error {
	return interception.ErrUnsupported
}

func removeSame(*interception.Netns, []interception.Object) error { return interception.ErrUnsupported }

func othersOf(*interception.Netns, interception.Owner) ([]interception.Object, error) {
	return nil, interception.ErrUnsupported
}

func portsOf(*interception.Netns) ([]interception.Port, error) {
	return nil, interception.ErrUnsupported
}
