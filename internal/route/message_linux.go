// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// message is a message of rtnetlink (rtnetlink(7)): a header of its kind, and attributes.
type message struct {
	kind, flags uint16
	header      []byte
	attributes  func(*netlink.AttributeEncoder)
}

// list asks for all objects of a kind, and returns what follows the netlink header of each.
func (s *Socket) list(kind uint16, header []byte) ([][]byte, error) {
	return s.ask(message{kind: kind, flags: unix.NLM_F_DUMP, header: header})
}

// do sends a message that changes something.
func (s *Socket) do(m message) error {
	_, err := s.ask(m)
	return err
}

// repeat sends a message of the kernel's, as one of another kind: whatever it says is what is added or deleted.
func (s *Socket) repeat(kind, flags uint16, raw []byte) error {
	return s.do(message{kind: kind, flags: flags, header: slices.Clone(raw)})
}

func (s *Socket) ask(m message) ([][]byte, error) {
	encoder := netlink.NewAttributeEncoder()
	if m.attributes != nil {
		m.attributes(encoder)
	}
	attributes, err := encoder.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode netlink message: %w", err)
	}
	return s.client.Ask(kernel.Request{Kind: m.kind, Flags: m.flags, Body: append(m.header, attributes...)})
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
