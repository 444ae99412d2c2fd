// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sockets

import "github.com/meshcni/meshcni/interception"

// Live is not used.
const Live = 0

// Served is not supported.
func Served(*interception.Netns, ...interception.Port) ([]interception.Family, error) {
	return nil, interception.ErrUnsupported
}

// Each is not supported.
func Each(*interception.Netns, uint32, func(Socket) (enough bool)) error {
	return interception.ErrUnsupported
}
