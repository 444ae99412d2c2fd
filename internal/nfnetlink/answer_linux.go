// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/kernel"
)

// The errors of a transaction that the kernel did not refuse by an answer.
var (
	errEmptyBatch = errors.New("the netlink batch has no message")
	// ErrNoAnswer means that the kernel did not acknowledge the batch: whether it was committed is not known.
	ErrNoAnswer = kernel.ErrNoAnswer
)

// RefusedError is the first error among the kernel's answers to a batch. Nothing of the batch was committed.
type RefusedError struct {
	// Message is the index of the message that the error is about; -1 when it is about the batch as a whole.
	Message int
	kernel.RefusedError
}

// answer is an NLMSG_ERROR message: the outcome of one message, success included.
type answer struct {
	sequence uint32
	errno    syscall.Errno
	text     string
}

// appendAnswers parses what one read gave. Messages of other types, of which a batch causes none, are passed over.
func appendAnswers(answers []answer, datagram []byte) ([]answer, error) {
	for len(datagram) > 0 {
		if len(datagram) < unix.SizeofNlMsghdr {
			return nil, fmt.Errorf("netlink answer: %d bytes are no message", len(datagram))
		}
		length := int(binary.NativeEndian.Uint32(datagram))
		if length < unix.SizeofNlMsghdr || length > len(datagram) {
			return nil, fmt.Errorf("netlink answer: a message of %d bytes in %d", length, len(datagram))
		}
		if binary.NativeEndian.Uint16(datagram[4:]) == unix.NLMSG_ERROR {
			a, err := parseAnswer(datagram[:length])
			if err != nil {
				return nil, err
			}
			answers = append(answers, a)
		}
		datagram = datagram[min(align(length), len(datagram)):]
	}
	return answers, nil
}

// parseAnswer reads struct nlmsgerr: the error, the header of the message it is about, that message's rest unless the answer is
// capped, and attributes.
func parseAnswer(message []byte) (answer, error) {
	const size = unix.SizeofNlMsghdr + 4 + unix.SizeofNlMsghdr
	if len(message) < size {
		return answer{}, fmt.Errorf("netlink answer: an error message of %d bytes", len(message))
	}
	code := int32(binary.NativeEndian.Uint32(message[unix.SizeofNlMsghdr:]))
	if code > 0 {
		return answer{}, fmt.Errorf("netlink answer: error %d is positive", code)
	}
	a := answer{sequence: binary.NativeEndian.Uint32(message[8:]), errno: syscall.Errno(-int64(code))}
	flags := binary.NativeEndian.Uint16(message[6:])
	if flags&unix.NLM_F_ACK_TLVS == 0 {
		return a, nil
	}
	rest := message[size:]
	if flags&unix.NLM_F_CAPPED == 0 {
		original := int64(binary.NativeEndian.Uint32(message[unix.SizeofNlMsghdr+4:])) - unix.SizeofNlMsghdr
		if original < 0 || original > int64(len(rest)) {
			return answer{}, fmt.Errorf("netlink answer: a quoted message of %d bytes in %d", original, len(rest))
		}
		rest = rest[min(align(int(original)), len(rest)):]
	}
	a.text = explanation(rest)
	return a, nil
}

// explanation finds NLMSGERR_ATTR_MSG among attributes. It is an extra: attributes that cannot be read give none.
func explanation(attributes []byte) string {
	for len(attributes) >= attributeHeader {
		length := int(binary.NativeEndian.Uint16(attributes))
		if length < attributeHeader || length > len(attributes) {
			return ""
		}
		if binary.NativeEndian.Uint16(attributes[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == unix.NLMSGERR_ATTR_MSG {
			text, _, _ := bytes.Cut(attributes[attributeHeader:length], []byte{0})
			return string(text)
		}
		attributes = attributes[min(align(length), len(attributes)):]
	}
	return ""
}

// align rounds up to the boundary of messages and attributes, which is the same.
func align(length int) int { return (length + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1) }

// outcome is what the answers to a batch of count messages mean. The acknowledgement of the last message says only that this
// one could be prepared: a failed commit is told as an error of the batch's begin, and failed messages by errors of their own.
func outcome(count int, answers []answer) error {
	acknowledged := false
	for _, a := range answers {
		if a.sequence < beginSequence || int64(a.sequence) > firstSequence+int64(count) {
			continue // it is about something that was asked before
		}
		if a.errno != 0 {
			return &RefusedError{int(int64(a.sequence) - firstSequence), kernel.RefusedError{Errno: a.errno, Text: a.text}}
		}
		acknowledged = acknowledged || a.sequence == firstSequence+uint32(count)-1
	}
	if !acknowledged {
		return ErrNoAnswer
	}
	return nil
}
