// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// addressesOf is not reached: no namespace can be opened here.
func addressesOf(*interception.Netns) ([]netip.Prefix, error) {
	return nil, interception.ErrUnsupported
}
