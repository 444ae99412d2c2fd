// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package agent

import (
	"net/netip"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

func findBranches(*interception.Netns, []netip.Addr) ([]ambient.Branch, error) {
	return nil, interception.ErrUnsupported
}
