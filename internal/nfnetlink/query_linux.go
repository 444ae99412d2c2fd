// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// errInterrupted means that what is listed changed meanwhile.
var errInterrupted = errors.New("netlink dump interrupted")

// maxDumps is how often a list that changed meanwhile is asked for again.
const maxDumps = 16

// Query asks a subsystem: kind is one of its messages, such as unix.NFT_MSG_GETSETELEM; flags, NLM_F_DUMP for a list, are added to
// NLM_F_REQUEST; family is a protocol family; fill writes the attributes. It returns the attributes of each message of the answer. A
// refusal is a [*RefusedError], such as one that wraps ENOENT.
func (s *Socket) Query(subsystem, kind uint8, flags uint16, family uint8, fill func(*Attributes)) ([][]byte, error) {
	for range maxDumps {
		messages, err := s.query(subsystem, kind, flags, family, fill)
		if !errors.Is(err, errInterrupted) {
			return messages, err
		}
	}
	return nil, fmt.Errorf("%w %d times: others change the rules all the time", errInterrupted, maxDumps)
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

func (s *Socket) query(subsystem, kind uint8, flags uint16, family uint8, fill func(*Attributes)) ([][]byte, error) {
	b := &Batch{subsystem: subsystem}
	b.Message(kind, flags|unix.NLM_F_ACK, family)
	fill(&b.Attributes)
	b.closeMessage()
	if b.err != nil {
		return nil, fmt.Errorf("encode netlink query: %w", b.err)
	}
	if err := retry(func() error { return unix.Send(s.fd, b.bytes, 0) }); err != nil {
		return nil, fmt.Errorf("send netlink query: %w", err)
	}
	var list [][]byte
	interrupted := false
	for {
		messages, err := s.read()
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			interrupted = interrupted || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
			if m.Header.Type != unix.NLMSG_ERROR && m.Header.Type != unix.NLMSG_DONE {
				list = append(list, m.Data[min(len(m.Data), nfgenmsgSize):])
				continue
			}
			if err := endOfAnswer(m); err != nil {
				return nil, err
			}
			if interrupted {
				return nil, errInterrupted
			}
			return list, nil
		}
	}
}

// nfgenmsgSize is the size of struct nfgenmsg, which messages of netfilter begin with.
const nfgenmsgSize = 4

// read reads some messages. The kernel has queued the answer, or the next part of it, when a send or a read returns.
func (s *Socket) read() ([]syscall.NetlinkMessage, error) {
	buffer := make([]byte, 32<<10) // the kernel's lists come in parts of at most that (netlink_dump)
	for {
		var n int
		var from unix.Sockaddr
		err := retry(func() (err error) {
			n, from, err = unix.Recvfrom(s.fd, buffer, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
			return err
		})
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
		case n > len(buffer):
			return nil, fmt.Errorf("netlink answer of %d bytes", n)
		case fromKernel(from):
			return syscall.ParseNetlinkMessage(buffer[:n])
		}
	}
}

// endOfAnswer is what the last message of an answer, an acknowledgement or the end of a list, says.
func endOfAnswer(m syscall.NetlinkMessage) error {
	if len(m.Data) < 4 {
		return nil
	}
	if code := int32(binary.NativeEndian.Uint32(m.Data)); code < 0 {
		return &RefusedError{Message: -1, Errno: syscall.Errno(-int64(code))}
	}
	return nil
}
