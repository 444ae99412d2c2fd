// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"encoding/binary"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// attributeHeader is the size of struct nlattr in bytes.
const attributeHeader = unix.SizeofNlAttr

// The kernel repeats a message's sequence number in its answers. The begin of the batch has the first, the messages have
// those behind it.
const (
	beginSequence = 1
	firstSequence = 2
)

// Batch is a transaction in the making: messages to one subsystem that the kernel commits together or not at all. Attributes
// written with [Batch.Uint32], [Batch.Text], [Batch.Bytes] and [Batch.Nest] belong to the message that [Batch.Message] began last.
// What cannot be encoded makes [Socket.Commit] fail before anything is sent.
type Batch struct {
	subsystem uint8
	bytes     []byte
	last      int // where the last message begins
	count     int
	err       error
}

// NewBatch begins a transaction with a subsystem, such as unix.NFNL_SUBSYS_NFTABLES.
func NewBatch(subsystem uint8) *Batch {
	b := &Batch{subsystem: subsystem, bytes: make([]byte, 0, 16<<10)}
	b.header(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, uint16(subsystem), beginSequence)
	return b
}

// Message begins the next message and returns its index, counted from 0. The kind is one of the subsystem's, such as
// unix.NFT_MSG_NEWTABLE; flags are added to NLM_F_REQUEST; family is a protocol family, such as unix.NFPROTO_INET.
func (b *Batch) Message(kind uint8, flags uint16, family uint8) int {
	index := b.count
	b.count++
	b.header(uint16(b.subsystem)<<8|uint16(kind), unix.NLM_F_REQUEST|flags, family, 0, firstSequence+uint32(index))
	return index
}

// Size is the number of bytes so far.
func (b *Batch) Size() int { return len(b.bytes) }

// header closes the last message and appends the headers of the next one. The resource id is in network order.
func (b *Batch) header(kind, flags uint16, family uint8, resource uint16, sequence uint32) {
	b.closeMessage()
	b.last = len(b.bytes)
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, 0) // length, set by closeMessage
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, kind)
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, flags)
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, sequence)
	b.bytes = binary.NativeEndian.AppendUint32(b.bytes, 0) // port of the sender: the kernel knows it
	b.bytes = append(b.bytes, family, unix.NFNETLINK_V0)
	b.bytes = binary.BigEndian.AppendUint16(b.bytes, resource)
}

func (b *Batch) closeMessage() {
	if len(b.bytes) > b.last {
		binary.NativeEndian.PutUint32(b.bytes[b.last:], uint32(len(b.bytes)-b.last))
	}
}

// Uint32 writes a number in network order, as nf_tables wants all its numbers.
func (b *Batch) Uint32(kind uint16, value uint32) {
	b.attribute(kind, 4)
	b.bytes = binary.BigEndian.AppendUint32(b.bytes, value)
}

// Text writes a string with the NUL that ends it.
func (b *Batch) Text(kind uint16, value string) {
	b.attribute(kind, len(value)+1)
	b.bytes = append(b.bytes, value...)
	b.bytes = append(b.bytes, 0)
	b.pad()
}

// Bytes writes a value as it is.
func (b *Batch) Bytes(kind uint16, value []byte) {
	b.attribute(kind, len(value))
	b.bytes = append(b.bytes, value...)
	b.pad()
}

// Nest writes an attribute whose value is the attributes that fill writes.
func (b *Batch) Nest(kind uint16, fill func()) {
	start := len(b.bytes)
	b.attribute(kind|unix.NLA_F_NESTED, 0)
	fill()
	b.length(start, len(b.bytes)-start)
}

// attribute appends the header of an attribute with a value of size bytes.
func (b *Batch) attribute(kind uint16, size int) {
	start := len(b.bytes)
	b.bytes = append(b.bytes, 0, 0)
	b.bytes = binary.NativeEndian.AppendUint16(b.bytes, kind)
	b.length(start, attributeHeader+size)
}

// length sets the length of the attribute at start. The field has 16 bits: a longer attribute would wrap around.
func (b *Batch) length(start, length int) {
	if length > math.MaxUint16 && b.err == nil {
		b.err = fmt.Errorf("message %d: an attribute of %d bytes: netlink attributes hold %d", b.count-1, length, math.MaxUint16)
	}
	binary.NativeEndian.PutUint16(b.bytes[start:], uint16(min(length, math.MaxUint16)))
}

func (b *Batch) pad() {
	for len(b.bytes)%unix.NLA_ALIGNTO != 0 {
		b.bytes = append(b.bytes, 0)
	}
}

// finish asks for an acknowledgement of the last message, ends the batch and returns what is to be sent.
func (b *Batch) finish() ([]byte, error) {
	switch {
	case b.err != nil:
		return nil, fmt.Errorf("encode netlink batch: %w", b.err)
	case b.count == 0:
		return nil, errEmptyBatch
	}
	// Kernels before 6.10 do not answer to the end of a batch, so that the last message has to ask.
	flags := binary.NativeEndian.Uint16(b.bytes[b.last+6:])
	binary.NativeEndian.PutUint16(b.bytes[b.last+6:], flags|unix.NLM_F_ACK)
	b.header(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, unix.AF_UNSPEC, uint16(b.subsystem), firstSequence+uint32(b.count))
	b.closeMessage()
	return b.bytes, nil
}
