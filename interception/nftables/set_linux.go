// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/lower"
)

// maxElementBytes limits a list of elements, which then continues in another message: an attribute
// holds 65,535 bytes, and an element has at most 200.
const maxElementBytes = 60_000

// anonymousName is the pattern for the kernel's name of a set that belongs to one rule.
const anonymousName = "__set%d"

// liveSetFlags returns the flags of a live set of addresses, which is a hash, or of prefixes.
func liveSetFlags(addresses bool) uint32 {
	if addresses {
		return 0
	}
	return unix.NFT_SET_INTERVAL
}

// addedSet is a set of the plan in the transaction: its name in the kernel, its id, and the prefix
// length of its networks; 0 for a set of intervals.
type addedSet struct {
	name string
	id   uint32
	bits int
}

func (t *transaction) addNamedSet(s interception.Set) addedSet {
	networks, bits := lower.Networks(s)
	added := addedSet{name: lower.SetName(s.Name, bits), bits: bits}
	t.part = part{string(s.Name), s.Why, intervalSets}
	flags, size, elements := uint32(unix.NFT_SET_CONSTANT|unix.NFT_SET_INTERVAL), 0, t.members[s.Name]
	switch {
	case s.Live:
		flags = liveSetFlags(s.Addresses)
		if s.Addresses {
			t.part.needs = networkSets
		}
	case bits != 0:
		t.part.needs = networkSets
		flags, size, elements = unix.NFT_SET_CONSTANT, len(networks), networkElements(networks)
	default:
		intervals := lower.Intervals(s.Members)
		size, elements = 2*len(intervals)+1, intervalElements(addressSpans(intervals))
	}
	userdata := appendComment(numberData(setKeyByteOrder, networkOrder), setComment, s.Why)
	added.id = t.addSet(added.name, flags, addressKey(s.Family), size, userdata)
	t.addElements(added.name, added.id, elements)
	return added
}

// addAnonymousSet adds a set for one condition of the next rule. Spans that are all single values
// make a set of values, others make one of intervals.
func (t *transaction) addAnonymousSet(k key, spans []span, intervals bool) uint32 {
	const flags = unix.NFT_SET_ANONYMOUS | unix.NFT_SET_CONSTANT
	order := uint32(networkOrder)
	if k.hostOrder && !intervals {
		order = hostOrder
	}
	userdata := numberData(setKeyByteOrder, order)
	if intervals {
		id := t.addSet(anonymousName, flags|unix.NFT_SET_INTERVAL, k, 2*len(spans)+1, userdata)
		t.addElements(anonymousName, id, intervalElements(spans))
		return id
	}
	id := t.addSet(anonymousName, flags, k, len(spans), userdata)
	t.addElements(anonymousName, id, valueElements(k, spans))
	return id
}

// addSet adds a set without elements. A size of 0 means any number of elements.
func (t *transaction) addSet(name string, flags uint32, k key, size int, userdata []byte) uint32 {
	t.sets++
	t.message(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE)
	t.batch.Text(unix.NFTA_SET_TABLE, t.table)
	t.batch.Text(unix.NFTA_SET_NAME, name)
	t.batch.Uint32(unix.NFTA_SET_FLAGS, flags)
	t.batch.Uint32(unix.NFTA_SET_KEY_TYPE, k.kind)
	t.batch.Uint32(unix.NFTA_SET_KEY_LEN, k.length)
	t.batch.Uint32(unix.NFTA_SET_ID, t.sets)
	if size > 0 {
		t.batch.Nest(unix.NFTA_SET_DESC, func() { t.batch.Uint32(unix.NFTA_SET_DESC_SIZE, uint32(size)) })
	}
	t.batch.Bytes(unix.NFTA_SET_USERDATA, userdata)
	return t.sets
}

// addElements adds elements to a set of the transaction.
func (t *transaction) addElements(name string, id uint32, elements []element) {
	t.changeElements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, name, id, elements)
}

// changeElements sends elements of a set in as many messages as needed. The id is 0 for a set that
// was there before.
func (t *transaction) changeElements(kind uint8, flags uint16, name string, id uint32, elements []element) {
	for len(elements) > 0 {
		t.message(kind, flags)
		t.batch.Text(unix.NFTA_SET_ELEM_LIST_TABLE, t.table)
		t.batch.Text(unix.NFTA_SET_ELEM_LIST_SET, name)
		if id != 0 {
			t.batch.Uint32(unix.NFTA_SET_ELEM_LIST_SET_ID, id)
		}
		t.batch.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func() {
			for begin := t.batch.Size(); len(elements) > 0 && t.batch.Size()-begin < maxElementBytes; elements = elements[1:] {
				t.addElement(elements[0])
			}
		})
	}
}

func (t *transaction) addElement(e element) {
	t.batch.Nest(unix.NFTA_LIST_ELEM, func() {
		if e.encoded != nil {
			t.batch.Encoded(e.encoded)
			return
		}
		if e.end {
			t.batch.Uint32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
		}
		t.batch.Nest(unix.NFTA_SET_ELEM_KEY, func() { t.batch.Bytes(unix.NFTA_DATA_VALUE, e.value) })
		if e.openEnded {
			t.batch.Bytes(unix.NFTA_SET_ELEM_USERDATA, numberData(elementFlags, elementOpenEnded))
		}
		if e.comment != "" {
			t.batch.Bytes(unix.NFTA_SET_ELEM_USERDATA, appendComment(nil, elementComment, e.comment))
		}
	})
}
