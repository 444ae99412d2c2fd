// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// socket is a netlink socket. It belongs to the network namespace that it was opened in, whichever
// namespace the calling thread is in.
type socket struct {
	fd       int
	received int    // datagrams since the last one that was sent
	buffer   []byte // for the parts of a long list
}

func dial(protocol int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	// Extended acknowledgements explain errors. Capped ones do not quote the message, and need less
	// room.
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, 1); err != nil {
			_ = unix.Close(fd)
			return nil, fmt.Errorf("set netlink socket option %d: %w", option, err)
		}
	}
	return &socket{fd: fd}, nil
}

// FD returns the descriptor, for options that this package does not set.
func (s *socket) FD() int { return s.fd }

func (s *socket) Close() error { return unix.Close(s.fd) }

func (s *socket) Send(datagram []byte) error {
	if err := s.reserve(len(datagram)); err != nil {
		return err
	}
	s.received = 0
	return retry(func() error { return unix.Send(s.fd, datagram, 0) })
}

const (
	// largestRead is the most that the kernel sends of a list at once, once it has seen a buffer of
	// that size (netlink_dump).
	largestRead = 32 << 10
	// shortList is the number of datagrams of most lists: some objects, and the end.
	shortList = 2
)

// Receive asks for the size of a datagram before it makes room for it. Most sockets serve one
// question, and a buffer for the largest datagram would be nearly all the memory that they take.
// Only a long list is read in large parts.
func (s *socket) Receive() ([]byte, error) {
	for {
		var buffer []byte
		if s.received >= shortList {
			buffer = s.largeBuffer()
		} else {
			size, _, err := s.receive(nil, unix.MSG_PEEK)
			if err != nil {
				return nil, err
			}
			buffer = make([]byte, size)
		}
		n, from, err := s.receive(buffer, 0)
		switch {
		case err != nil:
			return nil, err
		case !fromKernel(from):
			continue
		case n > len(buffer):
			return nil, fmt.Errorf("netlink answer of %d bytes: %w", n, unix.EMSGSIZE)
		}
		if s.received++; s.received > shortList {
			return slices.Clone(buffer[:n]), nil
		}
		return buffer[:n], nil
	}
}

func (s *socket) largeBuffer() []byte {
	if s.buffer == nil {
		s.buffer = make([]byte, largestRead)
	}
	return s.buffer
}

// receive returns the datagram's whole size, which may exceed the buffer's.
func (s *socket) receive(buffer []byte, flags int) (n int, from unix.Sockaddr, err error) {
	err = retry(func() (err error) {
		n, from, err = unix.Recvfrom(s.fd, buffer, unix.MSG_DONTWAIT|unix.MSG_TRUNC|flags)
		return err
	})
	return n, from, err
}

// fromKernel distinguishes the kernel's answers from messages of other processes, which the root
// user of the namespace may send to any port.
func fromKernel(from unix.Sockaddr) bool {
	address, ok := from.(*unix.SockaddrNetlink)
	return ok && address.Pid == 0
}

// retry repeats a system call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// sendOverhead is what the kernel subtracts from the send buffer's size (netlink_sendmsg).
const sendOverhead = 32

// alwaysFits is the size that fits the kernel's smallest send buffer (SOCK_MIN_SNDBUF).
const alwaysFits = 4096

// reserve makes the send buffer large enough for a datagram: a transaction cannot be split.
func (s *socket) reserve(size int) error {
	if size <= alwaysFits {
		return nil
	}
	capacity, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return fmt.Errorf("get send buffer size: %w", err)
	}
	if size+sendOverhead <= capacity {
		return nil
	}
	// SO_SNDBUFFORCE needs CAP_NET_ADMIN in the initial user namespace; SO_SNDBUF goes as far as
	// net.core.wmem_max. The kernel doubles both.
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size); err != nil {
			return fmt.Errorf("set send buffer size: %w", err)
		}
	}
	if capacity, err = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF); err != nil {
		return fmt.Errorf("get send buffer size: %w", err)
	}
	if size+sendOverhead > capacity {
		return fmt.Errorf("the transaction has %d bytes and the socket sends at most %d at once: %w: "+
			"raise the sysctl net.core.wmem_max to %d, or run with CAP_NET_ADMIN in the initial user namespace",
			size, capacity-sendOverhead, unix.EMSGSIZE, (size+sendOverhead+1)/2)
	}
	return nil
}
