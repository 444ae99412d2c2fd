// SPDX-License-Identifier: Apache-2.0

// Package sockets looks at the TCP sockets of a network namespace (sock_diag(7)). Agents of ambient
// mode find the node's proxy by them.
package sockets

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
)

// Socket is a TCP socket as the kernel describes it.
type Socket struct {
	Local, Remote netip.AddrPort
	// Mark is 0 for a caller without CAP_NET_ADMIN over the namespace.
	Mark interception.Mark
	// V6Only reports that a listener of IPv6 takes no connections of IPv4.
	V6Only bool
}
