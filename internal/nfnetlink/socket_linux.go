// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// Socket is a netlink socket of protocol NETLINK_NETFILTER in one network namespace. It is for one
// goroutine at a time.
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

// Commit sends the batch and reads all answers. It returns nil when the kernel has committed the
// batch; a [*RefusedError] when the kernel refused it and nothing was changed; another error when
// it was not sent, or when an answer is missing ([ErrNoAnswer]). The kernel processes the batch
// within the system call that sends it, and has queued its answers when that call returns: there is
// nothing to wait for, and no way to cancel a batch.
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

// answers reads until the queue is empty. It returns an error together with the answers so far.
func (s *Socket) answers() ([]answer, error) {
	var answers []answer
	var failed error
	for {
		datagram, err := s.client.Receive()
		switch {
		case errors.Is(err, unix.EAGAIN):
			return answers, failed
		case errors.Is(err, unix.ENOBUFS): // answers were lost; the others follow
			failed = err
			continue
		case err != nil:
			return answers, err
		}
		if answers, err = appendAnswers(answers, datagram); err != nil {
			return nil, err
		}
	}
}

// Query sends a request to a subsystem: kind is one of its messages, such as
// unix.NFT_MSG_GETSETELEM; flags, NLM_F_DUMP for a list, are added to NLM_F_REQUEST; family is a
// protocol family; fill writes the attributes. It returns the attributes of each message of the
// answer. A refusal is a [*RefusedError], such as one that wraps ENOENT.
func (s *Socket) Query(subsystem, kind uint8, flags uint16, family uint8, fill func(*Attributes)) ([][]byte, error) {
	a := Attributes{bytes: []byte{family, unix.NFNETLINK_V0, 0, 0}}
	fill(&a)
	if a.err != nil {
		return nil, fmt.Errorf("encode netlink query: %w", a.err)
	}
	messages, err := s.client.Ask(kernel.Request{Kind: uint16(subsystem)<<8 | uint16(kind), Flags: flags, Body: a.bytes})
	if refused, is := errors.AsType[*kernel.RefusedError](err); is {
		return nil, &RefusedError{-1, *refused}
	}
	for i, m := range messages {
		messages[i] = m[min(len(m), nfgenmsgSize):]
	}
	return messages, err
}

// Generation returns the number of the current generation of nf_tables' rules. Each transaction in
// the namespace, by any program, changes it.
func (s *Socket) Generation() (uint32, error) {
	messages, err := s.Query(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC, func(*Attributes) {})
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of the rules: %w", err)
	}
	for _, message := range messages {
		// The first attribute is NFTA_GEN_ID.
		if len(message) >= 8 && binary.NativeEndian.Uint16(message[2:]) == unix.NFTA_GEN_ID {
			return binary.BigEndian.Uint32(message[4:]), nil
		}
	}
	return 0, ErrNoAnswer
}

// nfgenmsgSize is the size of struct nfgenmsg, which messages of netfilter begin with.
const nfgenmsgSize = 4
