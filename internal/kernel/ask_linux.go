// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoAnswer means that the kernel's answer got lost: the outcome of the request is unknown.
var ErrNoAnswer = errors.New("no acknowledgement from the kernel")

// errAnswer means that the answer exceeds maxAnswer: the root user of the namespace has filled the
// namespace with more objects than any program needs.
var errAnswer = errors.New("an answer of the kernel")

// maxAnswer bounds an answer, in bytes. A hundred thousand IPv6 prefixes take a tenth of it.
const maxAnswer = 128 << 20

// errInterrupted means that the list changed while the kernel sent it.
var errInterrupted = errors.New("netlink dump interrupted")

// RefusedError is an error that the kernel answered.
type RefusedError struct {
	// Errno is the error's number.
	Errno syscall.Errno
	// Text is the kernel's explanation (NLMSGERR_ATTR_MSG); most errors have none.
	Text string
}

// Error returns the error's text with the kernel's explanation.
func (r *RefusedError) Error() string {
	if r.Text == "" {
		return r.Errno.Error()
	}
	return fmt.Sprintf("%v (%s)", r.Errno, r.Text)
}

// Unwrap returns the errno.
func (r *RefusedError) Unwrap() error { return r.Errno }

// Request is a netlink message: its kind, flags besides NLM_F_REQUEST and NLM_F_ACK, and its body.
type Request struct {
	Kind, Flags uint16
	Body        []byte
}

// Client sends one request after the other on a socket. It is for one goroutine at a time.
type Client struct {
	Conn
	sequence uint32
}

// NewClient returns a client of a socket. It uses the sequence numbers from 1<<31 on; those below
// are free for other uses of the socket.
func NewClient(c Conn) *Client { return &Client{Conn: c, sequence: firstSequence} }

const firstSequence = 1 << 31

// maxDumps is how often Ask requests a list that keeps changing.
const maxDumps = 16

// Ask sends a request and returns what follows the netlink header of each message of the answer:
// the objects of a list (NLM_F_DUMP); nothing for a change. A refusal is a [*RefusedError], a lost
// answer [ErrNoAnswer].
func (c *Client) Ask(r Request) ([][]byte, error) {
	for range maxDumps {
		list, err := c.ask(r)
		if !errors.Is(err, errInterrupted) {
			return list, err
		}
	}
	return nil, fmt.Errorf("%w %d times: other programs keep making changes", errInterrupted, maxDumps)
}

func (c *Client) ask(r Request) ([][]byte, error) {
	c.sequence = max(c.sequence+1, firstSequence)
	if err := c.Send(r.encode(c.sequence)); err != nil {
		return nil, fmt.Errorf("send netlink request of %d bytes: %w", unix.SizeofNlMsghdr+len(r.Body), err)
	}
	var list [][]byte
	interrupted, size := false, 0
	for {
		messages, err := c.read()
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			if m.Header.Seq != c.sequence {
				continue
			}
			interrupted = interrupted || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
			if m.Header.Type != unix.NLMSG_ERROR && m.Header.Type != unix.NLMSG_DONE {
				if size += len(m.Data); size > maxAnswer {
					c.drain()
					return nil, fmt.Errorf("%w of %d bytes, and it may have %d", errAnswer, size, maxAnswer)
				}
				list = append(list, m.Data)
				continue
			}
			if err := Verdict(m); err != nil {
				return nil, err
			}
			if interrupted {
				return nil, errInterrupted
			}
			return list, nil
		}
	}
}

func (r Request) encode(sequence uint32) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(r.Body)))
	b = binary.NativeEndian.AppendUint16(b, r.Kind)
	b = binary.NativeEndian.AppendUint16(b, r.Flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = binary.NativeEndian.AppendUint32(b, sequence)
	b = binary.NativeEndian.AppendUint32(b, 0) // port of the sender: the kernel knows it
	return append(b, r.Body...)
}

// read reads some messages. The kernel has queued the answer, or its next part, when a send or a
// read returns.
func (c *Client) read() ([]syscall.NetlinkMessage, error) {
	datagram, err := c.Receive()
	if errors.Is(err, unix.ENOBUFS) {
		c.drain()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	messages, err := syscall.ParseNetlinkMessage(datagram)
	if err != nil {
		return nil, fmt.Errorf("%w: messages that cannot be read: %w", ErrNoAnswer, err)
	}
	return messages, nil
}

// drain reads the rest of a damaged answer: the kernel starts no other list before it has sent it.
func (c *Client) drain() {
	for {
		if _, err := c.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// Verdict returns the result in an error message or the end of a list: nil for an acknowledgement,
// a [*RefusedError], or [ErrNoAnswer] for any other message.
func Verdict(m syscall.NetlinkMessage) error {
	// The error number and, in an error message, the header of the message that it is about.
	size, isError := 4, m.Header.Type == unix.NLMSG_ERROR
	if isError {
		size += unix.SizeofNlMsghdr
	}
	if len(m.Data) < size {
		return fmt.Errorf("%w: %d bytes are too few for a message", ErrNoAnswer, len(m.Data))
	}
	code := int32(binary.NativeEndian.Uint32(m.Data))
	switch {
	case isError && code > 0:
		return fmt.Errorf("%w: error %d is positive", ErrNoAnswer, code)
	case code >= 0:
		return nil
	}
	refused := &RefusedError{Errno: syscall.Errno(-int64(code))}
	if m.Header.Flags&unix.NLM_F_ACK_TLVS == 0 {
		return refused
	}
	rest := m.Data[size:]
	if isError && m.Header.Flags&unix.NLM_F_CAPPED == 0 { // then the rest of the message that it is about is quoted
		quoted := int64(binary.NativeEndian.Uint32(m.Data[4:])) - unix.SizeofNlMsghdr
		if quoted < 0 || quoted > int64(len(rest)) {
			return fmt.Errorf("%w: a quoted message of %d bytes in %d", ErrNoAnswer, quoted, len(rest))
		}
		rest = rest[min((quoted+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), int64(len(rest))):]
	}
	refused.Text = explanation(rest)
	return refused
}

// explanation finds NLMSGERR_ATTR_MSG among attributes; "" if they are unreadable.
func explanation(attributes []byte) string {
	d, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return ""
	}
	for d.Next() {
		if d.Type() == unix.NLMSGERR_ATTR_MSG {
			return d.String()
		}
	}
	return ""
}
