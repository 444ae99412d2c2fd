// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

const wholeMask = ^interception.Mark(0)

func (w *ruleWriter) mark(field markField, c interception.Condition[interception.MarkBits]) {
	if !c.Present() {
		return
	}
	w.add(field.loaded(register))
	if mask := c.Set().Mask; mask != wholeMask {
		w.add(bitwise(hostNumber(mask), hostNumber(uint32(0))))
	}
	w.add(compare(equality(c.Negated()), hostNumber(c.Set().Value)))
}

// markField is a mark, and how an expression loads and stores it.
type markField struct {
	name                string
	keyAttribute, key   uint32
	destination, source uint32
}

func packetMark() markField {
	return markField{"meta", unix.NFTA_META_KEY, unix.NFT_META_MARK, unix.NFTA_META_DREG, unix.NFTA_META_SREG}
}

func connectionMark() markField {
	return markField{"ct", unix.NFTA_CT_KEY, unix.NFT_CT_MARK, unix.NFTA_CT_DREG, unix.NFTA_CT_SREG}
}

// loaded puts the mark into a register.
func (f markField) loaded(to uint32) expression {
	return numbered(f.name, f.keyAttribute, f.key, f.destination, to)
}

// stored writes the mark from the register.
func (f markField) stored() expression {
	return numbered(f.name, f.keyAttribute, f.key, f.source, register)
}

// copyMark copies the bits of a mask, or writes them if the rule's match fixes what they are.
func (w *ruleWriter) copyMark(from, to markField, mask interception.Mark, bits interception.MarkBits, fixed bool) {
	if fixed && bits.Mask != wholeMask {
		w.setBits(to.loaded(register), to.stored(), bits)
		return
	}
	w.copyBits(from, to, mask)
}

// copyBits copies the bits of a mask from one mark to another; 0 stands for all bits.
func (w *ruleWriter) copyBits(from, to markField, mask interception.Mark) {
	if mask == 0 || mask == wholeMask {
		w.add(from.loaded(register), to.stored())
		return
	}
	w.add(to.loaded(register), bitwise(hostNumber(^mask), hostNumber(uint32(0))))
	w.add(from.loaded(secondRegister), bitwiseIn(secondRegister, hostNumber(mask), hostNumber(uint32(0))))
	w.add(mergeWith(4), to.stored())
}

// state tests the one state of a packet, a bit of the field.
func (w *ruleWriter) state(c interception.Condition[interception.ConnState]) {
	if !c.Present() {
		return
	}
	w.add(conntrack(unix.NFT_CT_STATE))
	w.add(bitwise(hostNumber(stateBits(c.Set())), hostNumber(uint32(0))))
	w.add(compare(equality(!c.Negated()), hostNumber(uint32(0))))
}

// goes tests the direction of a packet, a byte of the field.
func (w *ruleWriter) goes(d interception.Direction) {
	if d == interception.AnyDirection {
		return
	}
	w.add(conntrack(unix.NFT_CT_DIRECTION))
	w.add(compare(unix.NFT_CMP_EQ, []byte{directionByte(d)}))
}

// directionByte numbers a direction (linux/netfilter/nf_conntrack_tuple_common.h).
func directionByte(d interception.Direction) byte { return byte(d - interception.DirectionOriginal) }

// stateBits numbers the states (linux/netfilter/nf_conntrack_common.h, NF_CT_STATE_BIT).
func stateBits(states interception.ConnState) uint32 {
	var bits uint32
	for _, s := range []struct {
		state interception.ConnState
		bit   uint32
	}{
		{interception.StateNew, 1 << 3},
		{interception.StateEstablished, 1 << 1},
		{interception.StateRelated, 1 << 2},
		{interception.StateInvalid, 1 << 0},
		{interception.StateUntracked, 1 << 6},
	} {
		if states&s.state != 0 {
			bits |= s.bit
		}
	}
	return bits
}

// flags tests the byte of the TCP header that holds its flags (RFC 9293, section 3.1).
func (w *ruleWriter) flags(c interception.Condition[interception.TCPFlags]) {
	if !c.Present() {
		return
	}
	w.add(payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1))
	w.add(bitwise([]byte{byte(c.Set().Mask)}, []byte{0}))
	w.add(compare(equality(c.Negated()), []byte{byte(c.Set().Set)}))
}

func hostNumber[N ~uint32](number N) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(number))
}
