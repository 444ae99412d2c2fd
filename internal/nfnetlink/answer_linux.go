// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// The errors of a transaction without a refusal from the kernel.
var (
	errEmptyBatch = errors.New("the netlink batch has no message")
	// ErrNoAnswer means that the kernel's acknowledgement is missing: the outcome is unknown.
	ErrNoAnswer = kernel.ErrNoAnswer
)

// RefusedError is the first error among the answers to a batch. Nothing of the batch was committed.
type RefusedError struct {
	// Message is the index of the refused message; -1 when the error is about the whole batch.
	Message int
	kernel.RefusedError
}

// answer is an NLMSG_ERROR message: the outcome of one message, success included.
type answer struct {
	sequence uint32
	refused  *kernel.RefusedError // nil for an acknowledgement
}

// appendAnswers parses the result of one read. A batch causes no messages of other types.
func appendAnswers(answers []answer, datagram []byte) ([]answer, error) {
	messages, err := syscall.ParseNetlinkMessage(datagram)
	if err != nil {
		return nil, fmt.Errorf("netlink answer of %d bytes: %w", len(datagram), err)
	}
	for _, m := range messages {
		if m.Header.Type != unix.NLMSG_ERROR {
			continue
		}
		a := answer{sequence: m.Header.Seq}
		if err := kernel.Verdict(m); err != nil && !errors.As(err, &a.refused) {
			return nil, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// outcome evaluates the answers to a batch of count messages. The acknowledgement of the last
// message only means that this message could be prepared: a failed commit is reported as an error
// of the batch's begin, and failed messages by errors of their own.
func outcome(count int, answers []answer) error {
	acknowledged := false
	for _, a := range answers {
		if a.sequence < beginSequence || int64(a.sequence) > firstSequence+int64(count) {
			continue // it belongs to an earlier request
		}
		if a.refused != nil {
			return &RefusedError{int(int64(a.sequence) - firstSequence), *a.refused}
		}
		acknowledged = acknowledged || a.sequence == firstSequence+uint32(count)-1
	}
	if !acknowledged {
		return ErrNoAnswer
	}
	return nil
}

// Decode calls each for every attribute of a message that [Socket.Query] has returned. Numbers are
// in network byte order.
func Decode(message []byte, each func(*netlink.AttributeDecoder)) error {
	d, err := netlink.NewAttributeDecoder(message)
	if err != nil {
		return err
	}
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		each(d)
	}
	return d.Err()
}
