// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

// query lists objects of a kind and family, as their attributes.
func query(socket *nfnetlink.Socket, kind, family uint8, fill func(*nfnetlink.Attributes)) ([][]byte, error) {
	return socket.Query(unix.NFNL_SUBSYS_NFTABLES, kind, unix.NLM_F_DUMP, family, fill)
}

// tableHandle is NFTA_TABLE_HANDLE (linux/netfilter/nf_tables.h).
const tableHandle = 4

// dumpTables returns the handles of the tables of family inet by their names.
func dumpTables(socket *nfnetlink.Socket) (map[string]uint64, error) {
	messages, err := query(socket, unix.NFT_MSG_GETTABLE, unix.NFPROTO_INET, func(*nfnetlink.Attributes) {})
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	handles := map[string]uint64{}
	for _, m := range messages {
		a := parseAttributes(m)
		name, handle := a.text(unix.NFTA_TABLE_NAME), a.take(tableHandle)
		if a.bad || len(handle) != 8 {
			return nil, fmt.Errorf("decode a table: %w", errMalformed)
		}
		handles[name] = binary.BigEndian.Uint64(handle)
	}
	return handles, nil
}

// dumpElements returns the set elements in the kernel's form, each as its attributes.
func dumpElements(socket *nfnetlink.Socket, family uint8, table, set string) ([][]byte, error) {
	messages, err := query(socket, unix.NFT_MSG_GETSETELEM, family, func(a *nfnetlink.Attributes) {
		a.Text(unix.NFTA_SET_ELEM_LIST_TABLE, table)
		a.Text(unix.NFTA_SET_ELEM_LIST_SET, set)
	})
	if err != nil {
		return nil, err
	}
	var elements [][]byte
	for _, m := range messages {
		more, err := elementsOf(m)
		if err != nil {
			return nil, fmt.Errorf("decode elements of set %s: %w", set, err)
		}
		elements = append(elements, more...)
	}
	return elements, nil
}

func elementsOf(message []byte) ([][]byte, error) {
	a := parseAttributes(message)
	elements, err := list(a.take(unix.NFTA_SET_ELEM_LIST_ELEMENTS))
	if a.bad {
		err = errMalformed
	}
	return elements, err
}

// liveMembers returns the members of the plan's live sets that the table has with the same type.
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
		elements, err := dumpElements(socket, unix.NFPROTO_INET, string(p.Owner), lower.SetName(set.Name, 0))
		if err != nil {
			return nil, fmt.Errorf("read the members of set %s: %w", set.Name, err)
		}
		members[set.Name] = make([]element, len(elements))
		for i, encoded := range elements {
			members[set.Name][i].encoded = encoded
		}
	}
	return members, nil
}

// isLiveSet reports whether the table has a live set of this name and type.
func isLiveSet(socket *nfnetlink.Socket, owner interception.Owner, s interception.Set) (bool, error) {
	messages, err := query(socket, unix.NFT_MSG_GETSET, unix.NFPROTO_INET, func(a *nfnetlink.Attributes) {
		a.Text(unix.NFTA_SET_TABLE, string(owner))
	})
	if err != nil {
		return false, fmt.Errorf("list sets: %w", err)
	}
	for _, m := range messages {
		set := decodeSet(m)
		if set.strange == malformed {
			return false, fmt.Errorf("decode a set: %w", errMalformed)
		}
		if set.name == lower.SetName(s.Name, 0) {
			return set.flags == liveSetFlags(s.Addresses) && set.keyLength == addressKey(s.Family).length, nil
		}
	}
	return false, nil
}

// attributes are netlink attributes by their types. A reader takes one after the other; what is
// left at the end is unknown to it.
type attributes struct {
	left []attribute
	bad  bool // one did not have the requested form
}

type attribute struct {
	kind  uint16
	value []byte
}

func parseAttributes(data []byte) *attributes {
	a := &attributes{left: make([]attribute, 0, 4)} // most have no more
	a.bad = nfnetlink.Decode(data, func(d *netlink.AttributeDecoder) { a.left = append(a.left, attribute{d.Type(), d.Bytes()}) }) != nil
	return a
}

// at returns where an attribute is among those that are left; -1 if it is missing.
func (a *attributes) at(kind uint16) int {
	return slices.IndexFunc(a.left, func(one attribute) bool { return one.kind == kind })
}

// whole reports whether every attribute was taken, and had the requested form.
func (a *attributes) whole() bool { return !a.bad && len(a.left) == 0 }

func (a *attributes) has(kind uint16) bool {
	return a.at(kind) >= 0
}

// take returns an attribute's value; nil when the attribute is missing.
func (a *attributes) take(kind uint16) []byte {
	at := a.at(kind)
	if at < 0 {
		return nil
	}
	value := a.left[at].value
	a.left = slices.Delete(a.left, at, at+1)
	return value
}

// number returns a number of four bytes; 0 when it is missing.
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

// text returns a string up to its terminating NUL; "" when it is missing.
func (a *attributes) text(kind uint16) string {
	text, _, _ := bytes.Cut(a.take(kind), []byte{0})
	return string(text)
}

// value returns the bytes of an attribute of data (NFTA_DATA_VALUE); nil when there are none.
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

// list returns the values of an attribute that is a list.
func list(data []byte) ([][]byte, error) {
	var elements [][]byte
	err := nfnetlink.Decode(data, func(d *netlink.AttributeDecoder) {
		if d.Type() == unix.NFTA_LIST_ELEM {
			elements = append(elements, d.Bytes())
		}
	})
	if err != nil {
		return nil, fmt.Errorf("decode nf_tables attributes: %w", err)
	}
	return elements, nil
}
