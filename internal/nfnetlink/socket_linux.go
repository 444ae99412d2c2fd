// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// Socket is a netlink socket of protocol NETLINK_NETFILTER. It belongs to one network namespace. It is for one goroutine at a time.
type Socket struct {
	client *kernel.Client
}

// Open opens a socket in the network namespace of an open descriptor (namespaces(7)).
func Open(in *os.File) (*Socket, error) { return Dial(kernel.Of(in)) }

// Dial opens a socket in a namespace.
func Dial(in kernel.Namespace) (*Socket, error) {
	conn, err := in.Dial(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netfilter: %w", err)
	}
	return &Socket{client: kernel.NewClient(conn)}, nil
}

// Close closes the socket.
func (s *Socket) Close() error { return s.client.Close() }

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
	if err := s.client.Send(datagram); err != nil {
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
	buffer := s.client.Buffer()
	var answers []answer
	var failed error
	for {
		n, err := s.client.Receive(buffer)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return answers, failed
		case errors.Is(err, unix.ENOBUFS): // answers were lost; those that were not still follow
			failed = err
			continue
		case err != nil:
			return answers, err
		}
		if answers, err = appendAnswers(answers, buffer[:n]); err != nil {
			return nil, err
		}
	}
}
