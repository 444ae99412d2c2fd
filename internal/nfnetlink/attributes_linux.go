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

// Attributes writes netlink attributes (linux/netlink.h, struct nlattr). One that is too long to be encoded makes the message that it is
// in fail before anything is sent.
type Attributes struct {
	bytes []byte
	err   error
}

// Size is the number of bytes so far.
func (a *Attributes) Size() int { return len(a.bytes) }

// All are the attributes so far, encoded.
func (a *Attributes) All() []byte { return a.bytes }

// Uint32 writes a number in network order, as nf_tables wants all its numbers.
func (a *Attributes) Uint32(kind uint16, value uint32) {
	a.attribute(kind, 4)
	a.bytes = binary.BigEndian.AppendUint32(a.bytes, value)
}

// Text writes a string with the NUL that ends it.
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

// length sets the length of the attribute at start. The field has 16 bits: a longer attribute would wrap around.
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
