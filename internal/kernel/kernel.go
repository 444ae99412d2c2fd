// SPDX-License-Identifier: Apache-2.0

package kernel

// Namespace is what the kernel keeps for a network namespace. [Of] is the one of an open descriptor.
type Namespace interface {
	// Dial opens a netlink socket of a protocol, such as unix.NETLINK_ROUTE.
	Dial(protocol int) (Conn, error)
	// ReadSysctl reads a parameter, by its path below /proc/sys/net.
	ReadSysctl(key string) (string, error)
	// WriteSysctl writes one.
	WriteSysctl(key, value string) error
	// Change runs a function on a thread that is in the namespace: one of github.com/vishvananda/netlink that changes something, which
	// what names. The error is the kernel's, or [ErrNoAnswer] where it is not known whether the kernel did what it was asked, as after a
	// panic of the library.
	Change(what string, change func() error) error
}

// Conn is a netlink socket. It is for one goroutine at a time.
type Conn interface {
	// Send sends a datagram: one or more messages. The kernel has worked on it, and queued its answers, when Send returns.
	Send(datagram []byte) error
	// Receive reads a datagram of the kernel's into a buffer. The error is EAGAIN when there is none, ENOBUFS when some got lost.
	Receive(buffer []byte) (int, error)
	// Close closes the socket.
	Close() error
}
