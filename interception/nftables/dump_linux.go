// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

// dump lists objects of a kind, as their attributes.
func dump(socket *nfnetlink.Socket, kind uint8, fill func(*nfnetlink.Attributes)) ([][]byte, error) {
	return socket.Query(unix.NFNL_SUBSYS_NFTABLES, kind, unix.NLM_F_DUMP, unix.NFPROTO_INET, fill)
}

// decoder reads attributes of nf_tables, whose numbers are in network order.
func decoder(attributes []byte) (*netlink.AttributeDecoder, error) {
	d, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return nil, fmt.Errorf("decode nf_tables attributes: %w", err)
	}
	d.ByteOrder = binary.BigEndian
	return d, nil
}

// tableHandle is NFTA_TABLE_HANDLE (linux/netfilter/nf_tables.h).
const tableHandle = 4

// dumpTables are the tables of family inet: their handles by their names.
func dumpTables(socket *nfnetlink.Socket) (map[string]uint64, error) {
	messages, err := dump(socket, unix.NFT_MSG_GETTABLE, func(*nfnetlink.Attributes) {})
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	handles := map[string]uint64{}
	for _, m := range messages {
		d, err := decoder(m)
		if err != nil {
			return nil, err
		}
		var name string
		var handle uint64
		for d.Next() {
			switch d.Type() {
			case unix.NFTA_TABLE_NAME:
				name = d.String()
			case tableHandle:
				handle = d.Uint64()
			}
		}
		if err := d.Err(); err != nil {
			return nil, fmt.Errorf("decode a table: %w", err)
		}
		handles[name] = handle
	}
	return handles, nil
}

// dumpElements are the elements of a set.
func dumpElements(socket *nfnetlink.Socket, table, set string) ([]element, error) {
	messages, err := dump(socket, unix.NFT_MSG_GETSETELEM, func(a *nfnetlink.Attributes) {
		a.Text(unix.NFTA_SET_ELEM_LIST_TABLE, table)
		a.Text(unix.NFTA_SET_ELEM_LIST_SET, set)
	})
	if err != nil {
		return nil, err
	}
	var elements []element
	for _, m := range messages {
		d, err := decoder(m)
		if err != nil {
			return nil, err
		}
		for d.Next() {
			if d.Type() == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				d.Nested(func(list *netlink.AttributeDecoder) error {
					for list.Next() {
						elements = append(elements, decodeElement(list.Bytes()))
					}
					return nil
				})
			}
		}
		if err := d.Err(); err != nil {
			return nil, fmt.Errorf("decode elements of set %s: %w", set, err)
		}
	}
	return elements, nil
}

// decodeElement keeps an element as it is, and reads its comment.
func decodeElement(attributes []byte) element {
	e := element{encoded: attributes}
	d, err := decoder(attributes)
	if err != nil {
		return e
	}
	for d.Next() {
		if d.Type() == unix.NFTA_SET_ELEM_USERDATA {
			e.comment = commentOf(d.Bytes(), elementComment)
		}
	}
	return e
}

// liveMembers are the members of the plan's live sets that the table has, of the same type.
func liveMembers(socket *nfnetlink.Socket, p *interception.Plan) (map[interception.SetName][]element, error) {
	members := map[interception.SetName][]element{}
	for set := range p.Sets() {
		if !set.Live {
			continue
		}
		same, err := isLiveSet(socket, p.Owner, set)
		if err != nil {
			return nil, err
		}
		if !same {
			continue
		}
		elements, err := dumpElements(socket, string(p.Owner), lower.SetName(set.Name, 0))
		if err != nil {
			return nil, fmt.Errorf("read the members of set %s: %w", set.Name, err)
		}
		members[set.Name] = elements
	}
	return members, nil
}

// isLiveSet reports whether the table has a live set of this name and type.
func isLiveSet(socket *nfnetlink.Socket, owner interception.Owner, s interception.Set) (bool, error) {
	messages, err := dump(socket, unix.NFT_MSG_GETSET, func(a *nfnetlink.Attributes) { a.Text(unix.NFTA_SET_TABLE, string(owner)) })
	if err != nil {
		return false, fmt.Errorf("list sets: %w", err)
	}
	for _, m := range messages {
		d, err := decoder(m)
		if err != nil {
			return false, err
		}
		var name string
		var flags, length uint32
		for d.Next() {
			switch d.Type() {
			case unix.NFTA_SET_NAME:
				name = d.String()
			case unix.NFTA_SET_FLAGS:
				flags = d.Uint32()
			case unix.NFTA_SET_KEY_LEN:
				length = d.Uint32()
			}
		}
		if err := d.Err(); err != nil {
			return false, fmt.Errorf("decode a set: %w", err)
		}
		if name == lower.SetName(s.Name, 0) {
			return flags == liveSetFlags && length == addressKey(s.Family).length, nil
		}
	}
	return false, nil
}

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
