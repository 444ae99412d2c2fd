// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"encoding/binary"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// The kernel repeats a message's sequence number in its answers. The begin of the batch has the
// first number, and the messages have the following ones.
const (
	beginSequence = 1
	firstSequence = 2
)

// Batch is a transaction in the making: messages to one subsystem that the kernel commits together
// or not at all. Attributes belong to the latest message of [Batch.Message]. What cannot be encoded
// makes [Socket.Commit] fail before anything is sent.
type Batch struct {
	Attributes
	subsystem uint8
	last      int // where the last message begins
	count     int
}

// NewBatch begins a transaction with a subsystem, such as unix.NFNL_SUBSYS_NFTABLES.
func NewBatch(subsystem uint8) *Batch {
	b := &Batch{subsystem: subsystem, Attributes: Attributes{bytes: make([]byte, 0, 16<<10)}}
	b.header(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, uint16(subsystem), beginSequence)
	return b
}

// Message begins the next message and returns its index, counted from 0. The kind is one of the
// subsystem's, such as unix.NFT_MSG_NEWTABLE; flags are added to NLM_F_REQUEST; family is a
// protocol family, such as unix.NFPROTO_INET.
func (b *Batch) Message(kind uint8, flags uint16, family uint8) int {
	index := b.count
	b.count++
	b.header(uint16(b.subsystem)<<8|uint16(kind), unix.NLM_F_REQUEST|flags, family, 0, firstSequence+uint32(index))
	return index
}

// OnGeneration makes the kernel refuse the batch, with ERESTART about the batch as a whole, unless
// the subsystem's generation is still the one that [Socket.Generation] returned. Call it before the
// first message.
func (b *Batch) OnGeneration(generation uint32) { b.Uint32(unix.NFNL_BATCH_GENID, generation) }

// header closes the last message and appends the next one's headers, the resource id in network
// order.
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

// finish requests an acknowledgement of the last message, ends the batch and returns its bytes.
func (b *Batch) finish() ([]byte, error) {
	switch {
	case b.err != nil:
		return nil, fmt.Errorf("encode netlink batch: %w", b.err)
	case b.count == 0:
		return nil, errEmptyBatch
	}
	// Kernels before 6.10 never acknowledge the end of a batch, so the last message requests it.
	flags := binary.NativeEndian.Uint16(b.bytes[b.last+6:])
	binary.NativeEndian.PutUint16(b.bytes[b.last+6:], flags|unix.NLM_F_ACK)
	b.header(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, unix.AF_UNSPEC, uint16(b.subsystem), firstSequence+uint32(b.count))
	b.closeMessage()
	return b.bytes, nil
}

// attributeHeader is the size of struct nlattr in bytes.
const attributeHeader = unix.SizeofNlAttr

// Attributes writes netlink attributes (linux/netlink.h, struct nlattr). An attribute that is too
// long makes its message fail before anything is sent.
type Attributes struct {
	bytes []byte
	err   error
}

// AttributesBehind returns a writer that appends to the attributes in a buffer.
func AttributesBehind(buffer []byte) *Attributes { return &Attributes{bytes: buffer} }

// Size returns the number of bytes so far.
func (a *Attributes) Size() int { return len(a.bytes) }

// All returns the encoded attributes so far.
func (a *Attributes) All() []byte { return a.bytes }

// Uint32 writes a number in network order, as nf_tables wants all its numbers.
func (a *Attributes) Uint32(kind uint16, value uint32) {
	a.attribute(kind, 4)
	a.bytes = binary.BigEndian.AppendUint32(a.bytes, value)
}

// Text writes a string with its terminating NUL.
func (a *Attributes) Text(kind uint16, value string) {
	a.attribute(kind, len(value)+1)
	a.bytes = append(a.bytes, value...)
	a.bytes = append(a.bytes, 0)
	a.pad()
}

// Bytes writes a value as it is.
func (a *Attributes) Bytes(kind uint16, value []byte) {
	a.attribute(kind, len(value))
	a.bytes = append(a.bytes, value...)
	a.pad()
}

// Encoded writes attributes that are encoded already.
func (a *Attributes) Encoded(attributes []byte) {
	a.bytes = append(a.bytes, attributes...)
	a.pad()
}

// Nest writes an attribute whose value is the attributes that fill writes.
func (a *Attributes) Nest(kind uint16, fill func()) {
	start := len(a.bytes)
	a.attribute(kind|unix.NLA_F_NESTED, 0)
	fill()
	a.length(start, len(a.bytes)-start)
}

// attribute appends the header of an attribute with a value of size bytes.
func (a *Attributes) attribute(kind uint16, size int) {
	start := len(a.bytes)
	a.bytes = append(a.bytes, 0, 0)
	a.bytes = binary.NativeEndian.AppendUint16(a.bytes, kind)
	a.length(start, attributeHeader+size)
}

// length sets the length of the attribute at start. It has 16 bits, and must not wrap around.
func (a *Attributes) length(start, length int) {
	if length > math.MaxUint16 && a.err == nil {
		a.err = fmt.Errorf("an attribute of %d bytes: netlink attributes hold %d", length, math.MaxUint16)
	}
	binary.NativeEndian.PutUint16(a.bytes[start:], uint16(min(length, math.MaxUint16)))
}

func (a *Attributes) pad() {
	for len(a.bytes)%unix.NLA_ALIGNTO != 0 {
		a.bytes = append(a.bytes, 0)
	}
}
