// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/namespace"
)

// Socket is a netlink socket of protocol NETLINK_NETFILTER. It belongs to the network namespace it was opened in, whichever
// namespace its user is in. It is for one goroutine at a time.
type Socket struct {
	fd     int
	buffer []byte
}

// Open opens a socket in the network namespace of an open descriptor (namespaces(7)).
func Open(in *os.File) (*Socket, error) {
	s := &Socket{fd: -1}
	if err := namespace.Run(in, s.open); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Socket) open() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open netfilter netlink socket: %w", err)
	}
	// Extended acknowledgements explain errors; capped ones do not quote the message, so that many errors fit the buffer.
	for _, option := range []int{unix.NETLINK_EXT_ACK, unix.NETLINK_CAP_ACK} {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, 1); err != nil {
			_ = unix.Close(fd)
			return fmt.Errorf("set netlink socket option %d: %w", option, err)
		}
	}
	s.fd = fd
	return nil
}

// Close closes the socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// Commit sends the batch and reads all answers. It is nil when the kernel has committed the batch; a [*RefusedError] when it
// refused it, and nothing was changed; another error when it was not sent, or when an answer is missing ([ErrNoAnswer]). The
// kernel works on the batch within the one system call that sends it, and has queued its answers when that returns: there
// is nothing to wait for, and no point at which a batch could be called back.
//
// A batch is committed at most once: it cannot be changed or sent again afterwards.
func (s *Socket) Commit(b *Batch) error {
	datagram, err := b.finish()
	if err != nil {
		return err
	}
	if err := s.reserve(len(datagram)); err != nil {
		return err
	}
	if err := retry(func() error { return unix.Send(s.fd, datagram, 0) }); err != nil {
		return fmt.Errorf("send netlink batch of %d bytes: %w", len(datagram), err)
	}
	answers, err := s.answers()
	var refusal *RefusedError
	if verdict := outcome(b.count, answers); err == nil || errors.As(verdict, &refusal) {
		return verdict
	}
	return fmt.Errorf("%w: %w", ErrNoAnswer, err)
}

// answers reads until the queue is empty. An error is given beside the answers that could be read.
func (s *Socket) answers() ([]answer, error) {
	if s.buffer == nil {
		s.buffer = make([]byte, 16<<10)
	}
	var answers []answer
	var failed error
	for {
		n, from, err := s.receive()
		switch {
		case errors.Is(err, unix.EAGAIN):
			return answers, failed
		case errors.Is(err, unix.ENOBUFS): // answers were lost; those that were not still follow
			failed = err
			continue
		case err != nil:
			return answers, err
		case n > len(s.buffer):
			return answers, fmt.Errorf("netlink answer of %d bytes", n)
		case !fromKernel(from):
			continue
		}
		if answers, err = appendAnswers(answers, s.buffer[:n]); err != nil {
			return nil, err
		}
	}
}

func (s *Socket) receive() (n int, from unix.Sockaddr, err error) {
	err = retry(func() error {
		n, from, err = unix.Recvfrom(s.fd, s.buffer, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		return err
	})
	return n, from, err
}

// fromKernel tells the kernel's answers from messages of other processes, which the namespace's root may send to any port.
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

// sendOverhead is what the kernel takes off the send buffer before it compares (netlink_sendmsg).
const sendOverhead = 32

// reserve makes the send buffer large enough for one message of size bytes. A transaction cannot be split.
func (s *Socket) reserve(size int) error {
	capacity, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return fmt.Errorf("get send buffer size: %w", err)
	}
	if size+sendOverhead <= capacity {
		return nil
	}
	// SO_SNDBUFFORCE needs CAP_NET_ADMIN in the initial user namespace; SO_SNDBUF goes as far as net.core.wmem_max. The
	// kernel doubles both.
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
