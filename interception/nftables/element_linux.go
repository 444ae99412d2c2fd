// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// span is a closed range of values in network order.
type span struct {
	first, last []byte
}

func (s span) single() bool { return bytes.Equal(s.first, s.last) }

// element is a set element in the kernel's form.
type element struct {
	value     []byte
	end       bool // the interval ends before this value
	openEnded bool // the interval that begins here has no end
	comment   string
	encoded   []byte // the kernel's attributes, in place of all else
}

func valueElements(k key, spans []span) []element {
	elements := make([]element, len(spans))
	for i, s := range spans {
		elements[i].value = k.value(s.first)
	}
	return elements
}

// intervalElements returns the elements of a set of ascending intervals that neither overlap nor
// touch, as nft makes them: for each interval its first value and the one after its last; and an
// end at zero at the beginning, unless the first interval begins there.
func intervalElements(spans []span) []element {
	elements := make([]element, 0, 2*len(spans)+1)
	if zero := make([]byte, len(spans[0].first)); !bytes.Equal(spans[0].first, zero) {
		elements = append(elements, element{value: zero, end: true})
	}
	for _, s := range spans {
		next, overflow := successor(s.last)
		elements = append(elements, element{value: s.first, openEnded: overflow})
		if !overflow {
			elements = append(elements, element{value: next, end: true})
		}
	}
	return elements
}

// successor returns the next number, or reports overflow.
func successor(number []byte) (next []byte, overflow bool) {
	next = slices.Clone(number)
	for i := len(next) - 1; i >= 0; i-- {
		next[i]++
		if next[i] != 0 {
			return next, false
		}
	}
	return next, true
}

// networkElements returns networks of one length, by their first addresses.
func networkElements(networks []netip.Addr) []element {
	elements := make([]element, len(networks))
	values := make([]byte, 0, len(networks)*networks[0].BitLen()/8)
	for i, network := range networks {
		begin := len(values)
		values, _ = network.AppendBinary(values) // never fails
		elements[i].value = values[begin:len(values):len(values)]
	}
	return elements
}

func addressSpans(intervals []lower.Interval) []span {
	spans := make([]span, len(intervals))
	for i, interval := range intervals {
		spans[i] = span{interval.First.AsSlice(), interval.Last.AsSlice()}
	}
	return spans
}

// key is the type of the values that a condition compares.
type key struct {
	// kind is nft's number for the type (enum datatypes in its datatype.h). The kernel only stores
	// it, for programs that list a set.
	kind uint32
	// length is in bytes.
	length uint32
	// hostOrder means that the kernel has the value in host order, not as on the wire.
	hostOrder bool
}

func addressKey(family interception.Family) key {
	if family == interception.IPv6 {
		return key{kind: 8, length: 16} // ipv6_addr
	}
	return key{kind: 7, length: 4} // ipv4_addr
}

func portKey() key { return key{kind: 13, length: 2} } // inet_service

func uidKey() key { return key{kind: 24, length: 4, hostOrder: true} } // uid

func gidKey() key { return key{kind: 25, length: 4, hostOrder: true} } // gid

func interfaceKey() key { return key{kind: 41, length: unix.IFNAMSIZ, hostOrder: true} } // ifname

func markKey() key { return key{kind: 19, length: 4, hostOrder: true} } // mark

// value converts a number from network order to the form in which the kernel compares for equality.
func (k key) value(network []byte) []byte {
	if !k.hostOrder || k.length > 4 {
		return network // a name has no order
	}
	return binary.NativeEndian.AppendUint32(nil, binary.BigEndian.Uint32(network))
}

// network returns a number in network order, in the length of the key.
func (k key) network(number uint32) []byte {
	if k.length == 2 {
		return binary.BigEndian.AppendUint16(nil, uint16(number))
	}
	return binary.BigEndian.AppendUint32(nil, number)
}
