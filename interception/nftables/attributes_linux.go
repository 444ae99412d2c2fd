// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// attributes are netlink attributes by their types, from which a reader takes one after the other. What is left in the end is something
// that the reader does not know.
type attributes struct {
	left map[uint16][]byte
	bad  bool // one was not of the form that was asked for
}

func parseAttributes(data []byte) *attributes {
	a := &attributes{left: map[uint16][]byte{}}
	d, err := decoder(data)
	if err != nil {
		a.bad = true
		return a
	}
	for d.Next() {
		a.left[d.Type()] = d.Bytes()
	}
	a.bad = d.Err() != nil
	return a
}

// whole reports whether everything was taken, and was of the form that was asked for.
func (a *attributes) whole() bool { return !a.bad && len(a.left) == 0 }

func (a *attributes) has(kind uint16) bool {
	_, ok := a.left[kind]
	return ok
}

// take is an attribute's value; nil when it is not there.
func (a *attributes) take(kind uint16) []byte {
	value := a.left[kind]
	delete(a.left, kind)
	return value
}

// number is a number of four bytes; 0 when it is not there.
func (a *attributes) number(kind uint16) uint32 {
	if !a.has(kind) {
		return 0
	}
	value := a.take(kind)
	if len(value) != 4 {
		a.bad = true
		return 0
	}
	return binary.BigEndian.Uint32(value)
}

// text is a string up to the NUL that ends it; "" when it is not there.
func (a *attributes) text(kind uint16) string {
	text, _, _ := bytes.Cut(a.take(kind), []byte{0})
	return string(text)
}

// value is the value of an attribute of data (NFTA_DATA_VALUE), of at least one byte; nil when it is not there.
func (a *attributes) value(kind uint16) []byte {
	if !a.has(kind) {
		return nil
	}
	nested := parseAttributes(a.take(kind))
	value := nested.take(unix.NFTA_DATA_VALUE)
	if !nested.whole() || len(value) == 0 {
		a.bad = true
		return nil
	}
	return value
}

// list are the values of an attribute that is a list.
func list(data []byte) ([][]byte, error) {
	d, err := decoder(data)
	if err != nil {
		return nil, err
	}
	var elements [][]byte
	for d.Next() {
		if d.Type() == unix.NFTA_LIST_ELEM {
			elements = append(elements, d.Bytes())
		}
	}
	return elements, d.Err()
}
