// SPDX-License-Identifier: Apache-2.0

package unixsocket

import (
	"fmt"
	"net"
	"os"
)

// PeerError means that the process at the other end of a unix socket is neither root's nor of this
// process's user.
type PeerError struct {
	// UID is the effective user of the process, when it connected or began to listen.
	UID uint32
}

// Error names the user.
func (e *PeerError) Error() string {
	return fmt.Sprintf("the process at the other end is of user %d, and not of root or user %d", e.UID, os.Geteuid())
}

// CheckPeer accepts the process at the other end of a unix socket if it is root's, or of this
// process's user: both may do all that this process may. Any other process is a [*PeerError].
// CheckPeer asks the kernel which user connected, or began to listen (SO_PEERCRED, unix(7)).
func CheckPeer(connection net.Conn) error {
	uid, err := peerUID(connection)
	if err != nil {
		return err
	}
	if uid != 0 && int64(uid) != int64(os.Geteuid()) {
		return &PeerError{UID: uid}
	}
	return nil
}
