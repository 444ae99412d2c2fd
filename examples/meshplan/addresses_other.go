// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// addressesOf is never called: no namespace can be opened on this system.
func addressesOf(*interception.Netns) ([]netip.Prefix, error) {
	return nil, interception.ErrUnsupported
}
