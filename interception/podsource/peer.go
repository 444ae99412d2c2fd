// SPDX-License-Identifier: Apache-2.0

package podsource

import (
	"fmt"
	"net"
	"os"
)

// PeerError is about a process at the other end of a unix socket that has no business there.
type PeerError struct {
	// UID is the effective user of the process, when it connected or began to listen.
	UID uint32
}

// Error names the user.
func (e *PeerError) Error() string {
	return fmt.Sprintf("the process at the other end is of user %d, and not of root or user %d", e.UID, os.Geteuid())
}

// CheckPeer lets pass a unix socket's other end that is of root, or of the user of this process:
// who is either may do all that this process may. Others are a [*PeerError]. It asks the kernel who
// it was that connected, or began to listen (SO_PEERCRED, unix(7)).
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
