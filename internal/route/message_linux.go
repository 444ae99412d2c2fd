// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// message is a message of rtnetlink (rtnetlink(7)): a header of its kind, and attributes.
type message struct {
	kind, flags uint16
	header      []byte
	attributes  func(*netlink.AttributeEncoder)
}

// refusal is an error that the kernel answered, with its explanation where there is one.
type refusal struct {
	errno syscall.Errno
	text  string
}

func (r *refusal) Error() string {
	if r.text == "" {
		return r.errno.Error()
	}
	return fmt.Sprintf("%v (%s)", r.errno, r.text)
}

func (r *refusal) Unwrap() error { return r.errno }

var (
	errNoAnswer    = errors.New("no acknowledgement from the kernel")
	errInterrupted = errors.New("netlink dump interrupted")
)

// maxDumps is how often a list that changed meanwhile is asked for again.
const maxDumps = 16

// list asks for all objects of a kind, and returns what follows the netlink header of each.
func (s *Socket) list(kind uint16, header []byte) ([][]byte, error) {
	for range maxDumps {
		list, err := s.exchange(message{kind: kind, flags: unix.NLM_F_DUMP, header: header})
		if !errors.Is(err, errInterrupted) {
			return list, err
		}
	}
	return nil, fmt.Errorf("%w %d times: others change the network all the time", errInterrupted, maxDumps)
}

// do sends a message that changes something.
func (s *Socket) do(m message) error {
	_, err := s.exchange(m)
	return err
}

func (s *Socket) exchange(m message) ([][]byte, error) {
	datagram, err := m.encode()
	if err != nil {
		return nil, err
	}
	if err := unix.Send(s.fd, datagram, 0); err != nil {
		return nil, fmt.Errorf("send netlink message: %w", err)
	}
	var list [][]byte
	interrupted := false
	for {
		messages, err := s.read()
		if err != nil {
			return nil, err
		}
		for _, answer := range messages {
			interrupted = interrupted || answer.Header.Flags&unix.NLM_F_DUMP_INTR != 0
			if answer.Header.Type != unix.NLMSG_ERROR && answer.Header.Type != unix.NLMSG_DONE {
				list = append(list, answer.Data)
				continue
			}
			if err := verdict(answer); err != nil {
				return nil, err
			}
			if interrupted {
				return nil, errInterrupted
			}
			return list, nil
		}
	}
}

func (m message) encode() ([]byte, error) {
	encoder := netlink.NewAttributeEncoder()
	if m.attributes != nil {
		m.attributes(encoder)
	}
	attributes, err := encoder.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode netlink message: %w", err)
	}
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(m.header)+len(attributes)))
	b = binary.NativeEndian.AppendUint16(b, m.kind)
	b = binary.NativeEndian.AppendUint16(b, m.flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = append(b, make([]byte, 8)...) // sequence and port: one message at a time is under way
	return append(append(b, m.header...), attributes...), nil
}

// read reads some messages. The kernel has queued the answer, or the next part of it, when a send or a read returns.
func (s *Socket) read() ([]syscall.NetlinkMessage, error) {
	buffer := make([]byte, 32<<10) // the kernel's lists come in parts of at most that (netlink_dump)
	for {
		n, from, err := unix.Recvfrom(s.fd, buffer, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		sender, ok := from.(*unix.SockaddrNetlink)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errNoAnswer, err)
		case n > len(buffer):
			return nil, fmt.Errorf("netlink answer of %d bytes", n)
		case ok && sender.Pid == 0: // the namespace's root may send messages, too
			return syscall.ParseNetlinkMessage(buffer[:n])
		}
	}
}

// verdict is what the last message of an answer, an acknowledgement or the end of a list, says.
func verdict(m syscall.NetlinkMessage) error {
	if len(m.Data) < 4 {
		return nil
	}
	code := int32(binary.NativeEndian.Uint32(m.Data))
	if code >= 0 {
		return nil
	}
	r := &refusal{errno: syscall.Errno(-int64(code))}
	const quoted = 4 + unix.SizeofNlMsghdr // the header of the message that is refused; its rest is left out (NETLINK_CAP_ACK)
	if m.Header.Flags&unix.NLM_F_ACK_TLVS == 0 || len(m.Data) < quoted {
		return r
	}
	if d, err := netlink.NewAttributeDecoder(m.Data[quoted:]); err == nil {
		for d.Next() {
			if d.Type() == unix.NLMSGERR_ATTR_MSG {
				r.text = d.String()
			}
		}
	}
	return r
}

// decode splits what follows a netlink header into the header of its kind, of a size, and attributes.
func decode(data []byte, size int) ([]byte, *netlink.AttributeDecoder, error) {
	if len(data) < size {
		return nil, nil, fmt.Errorf("netlink answer: %d bytes hold no header of %d", len(data), size)
	}
	d, err := netlink.NewAttributeDecoder(data[size:])
	if err != nil {
		return nil, nil, fmt.Errorf("netlink answer: %w", err)
	}
	return data[:size], d, nil
}
