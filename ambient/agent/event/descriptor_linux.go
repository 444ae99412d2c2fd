// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// send writes data with the descriptor of a namespace.
func send(conn *net.UnixConn, data []byte, namespace *os.File) (n int, err error) {
	raw, err := namespace.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("the pod's network namespace: %w", err)
	}
	// The descriptor cannot be closed, and used again for another file, while it is sent.
	closed := raw.Control(func(fd uintptr) { n, _, err = conn.WriteMsgUnix(data, unix.UnixRights(int(fd)), nil) })
	if closed != nil {
		return 0, fmt.Errorf("the pod's network namespace: %w", closed)
	}
	return n, err
}

// receive reads data, and descriptors that came with it. It reports whether there were more of them
// than it has room for.
func receive(conn *net.UnixConn, data []byte) (n int, files []*os.File, more bool, err error) {
	control := make([]byte, unix.CmsgSpace(4))
	n, m, flags, _, err := conn.ReadMsgUnix(data, control)
	if err != nil || m == 0 {
		return n, nil, false, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:m])
	for i := range messages {
		descriptors, rightsErr := unix.ParseUnixRights(&messages[i])
		if rightsErr != nil {
			continue // it is no descriptor
		}
		for _, descriptor := range descriptors {
			files = append(files, os.NewFile(uintptr(descriptor), "network namespace"))
		}
	}
	return n, files, flags&unix.MSG_CTRUNC != 0, err
}
