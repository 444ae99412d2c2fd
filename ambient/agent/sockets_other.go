// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package agent

import (
	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// Listens is not supported.
func Listens(*interception.Netns, ...interception.Port) (bool, error) {
	return false, interception.ErrUnsupported
}

func proxyListens(*interception.Netns, ambient.Numbers) (bool, error) {
	return false, interception.ErrUnsupported
}

func proxyIsConnected(*interception.Netns, ambient.Numbers) (bool, error) {
	return false, interception.ErrUnsupported
}
