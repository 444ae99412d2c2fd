// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sockets

import "github.com/meshcni/meshcni/interception"

// Live is not used.
const Live = 0

// Listens is not supported.
func Listens(*interception.Netns, ...interception.Port) (bool, error) {
	return false, interception.ErrUnsupported
}

// Each is not supported.
func Each(*interception.Netns, uint32, func(Socket) (enough bool)) error {
	return interception.ErrUnsupported
}
