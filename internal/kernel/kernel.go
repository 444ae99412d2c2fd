// SPDX-License-Identifier: Apache-2.0

package kernel

// Namespace is what the kernel keeps for a network namespace. [Of] opens that of a descriptor.
type Namespace interface {
	// Dial opens a netlink socket of a protocol, such as unix.NETLINK_ROUTE.
	Dial(protocol int) (Conn, error)
	// ReadSysctl reads a parameter, by its path below /proc/sys/net.
	ReadSysctl(key string) (string, error)
	// WriteSysctl writes a parameter.
	WriteSysctl(key, value string) error
	// Change calls a function of github.com/vishvananda/netlink that changes something, on a thread
	// that is in the namespace; what names the change. The error is the kernel's, or [ErrNoAnswer]
	// when it is unknown whether the kernel made the change, for example after a panic of the
	// library.
	Change(what string, change func() error) error
}

// Conn is a netlink socket. It is for one goroutine at a time.
type Conn interface {
	// Send sends a datagram with one or more messages. When it returns, the kernel has queued its
	// answers.
	Send(datagram []byte) error
	// Receive returns the next datagram of the kernel's, in memory of its own. The error is EAGAIN
	// when the queue is empty, ENOBUFS when datagrams got lost.
	Receive() ([]byte, error)
	// Close closes the socket.
	Close() error
}
