// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// Query asks a subsystem: kind is one of its messages, such as unix.NFT_MSG_GETSETELEM; flags, NLM_F_DUMP for a list, are added to
// NLM_F_REQUEST; family is a protocol family; fill writes the attributes. It returns the attributes of each message of the answer. A
// refusal is a [*RefusedError], such as one that wraps ENOENT.
func (s *Socket) Query(subsystem, kind uint8, flags uint16, family uint8, fill func(*Attributes)) ([][]byte, error) {
	a := Attributes{bytes: []byte{family, unix.NFNETLINK_V0, 0, 0}}
	fill(&a)
	if a.err != nil {
		return nil, fmt.Errorf("encode netlink query: %w", a.err)
	}
	messages, err := s.client.Ask(kernel.Request{Kind: uint16(subsystem)<<8 | uint16(kind), Flags: flags, Body: a.bytes})
	var refused *kernel.RefusedError
	if errors.As(err, &refused) {
		return nil, &RefusedError{-1, *refused}
	}
	for i, m := range messages {
		messages[i] = m[min(len(m), nfgenmsgSize):]
	}
	return messages, err
}

// Generation is the number of the current generation of nf_tables' rules; each transaction of anybody in the namespace makes it another.
func (s *Socket) Generation() (uint32, error) {
	messages, err := s.Query(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC, func(*Attributes) {})
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of the rules: %w", err)
	}
	for _, message := range messages {
		// The first attribute is NFTA_GEN_ID.
		if len(message) >= 8 && binary.NativeEndian.Uint16(message[2:]) == generationID {
			return binary.BigEndian.Uint32(message[4:]), nil
		}
	}
	return 0, ErrNoAnswer
}

// generationID is NFTA_GEN_ID (linux/netfilter/nf_tables.h).
const generationID = 1

// nfgenmsgSize is the size of struct nfgenmsg, which messages of netfilter begin with.
const nfgenmsgSize = 4
