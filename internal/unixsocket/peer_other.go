// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package unixsocket

import (
	"fmt"
	"net"

	"github.com/meshcni/meshcni/interception"
)

func peerUID(net.Conn) (uint32, error) {
	return 0, fmt.Errorf("credentials of a peer: %w", interception.ErrUnsupported)
}
