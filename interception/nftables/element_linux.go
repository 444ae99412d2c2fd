// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception/lower"
)

// span is a closed range of values in network order.
type span struct {
	first, last []byte
}

func (s span) single() bool { return bytes.Equal(s.first, s.last) }

// element is a member of a set as the kernel has it.
type element struct {
	value     []byte
	end       bool // the interval ends before this value
	openEnded bool // the interval that begins here has no end
	comment   string
	encoded   []byte // the attributes as the kernel gave them, in place of all else
}

// valueElements are the elements of a set of single values.
func valueElements(k key, spans []span) []element {
	elements := make([]element, len(spans))
	for i, s := range spans {
		elements[i].value = k.value(s.first)
	}
	return elements
}

// intervalElements are the elements of a set of ascending intervals that neither overlap nor touch, as nft makes them: for each
// the value it begins with and the one behind its last; and an end at zero to begin with, unless the first begins there.
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

// successor is the number behind one, and whether there is none.
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

// networkElements are networks of one length, by their first addresses.
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
