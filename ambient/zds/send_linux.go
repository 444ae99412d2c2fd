// SPDX-License-Identifier: Apache-2.0

package zds

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// carriesMore reports whether a message carried descriptors for which there was no room, by the
// flags of recvmsg(2).
func carriesMore(flags int) bool { return flags&unix.MSG_CTRUNC != 0 }

// send sends a message, with the descriptor of a namespace unless that is nil. The error is
// errNamespaceClosed if the caller has closed that.
func send(socket *net.UnixConn, data []byte, namespace *os.File) error {
	if namespace == nil {
		_, err := socket.Write(data)
		return err
	}
	raw, err := namespace.SyscallConn()
	if err != nil {
		return errNamespaceClosed
	}
	var failure error
	// The descriptor cannot be closed, and used again for another file, while it is sent.
	err = raw.Control(func(fd uintptr) { _, _, failure = socket.WriteMsgUnix(data, unix.UnixRights(int(fd)), nil) })
	if err != nil {
		return errNamespaceClosed
	}
	return failure
}
