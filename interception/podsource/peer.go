// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"net"

	"github.com/meshcni/meshcni/internal/unixsocket"
)

// PeerError means that the process at the other end of a unix socket is neither root's nor of this
// process's user.
type PeerError = unixsocket.PeerError

// CheckPeer accepts the process at the other end of a unix socket if it is root's, or of this
// process's user: both may do all that this process may. Any other process is a [*PeerError].
// CheckPeer asks the kernel which user connected, or began to listen (SO_PEERCRED, unix(7)).
func CheckPeer(connection net.Conn) error { return unixsocket.CheckPeer(connection) }
