// SPDX-License-Identifier: Apache-2.0

package unixsocket

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerUID asks the kernel (SO_PEERCRED, unix(7)).
func peerUID(connection net.Conn) (uint32, error) {
	socket, ok := connection.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("a connection of %T has no credentials: use a unix socket", connection)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("ask for the peer's credentials: %w", err)
	}
	var credentials *unix.Ucred
	var failure error
	err = raw.Control(func(fd uintptr) {
		credentials, failure = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err == nil {
		err = failure
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the peer's credentials: %w", err)
	}
	return credentials.Uid, nil
}
