// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// list asks for all objects of a kind, by a header of that kind (rtnetlink(7)), and returns what follows the netlink header of each.
func (s *Socket) list(kind uint16, header []byte) ([][]byte, error) {
	return s.client.Ask(kernel.Request{Kind: kind, Flags: unix.NLM_F_DUMP, Body: header})
}

// send sends a message that changes something. It may be one of the kernel's, as one of another kind: whatever it says is what is added
// or deleted.
func (s *Socket) send(kind, flags uint16, body []byte) error {
	_, err := s.client.Ask(kernel.Request{Kind: kind, Flags: flags, Body: slices.Clone(body)})
	return err
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
