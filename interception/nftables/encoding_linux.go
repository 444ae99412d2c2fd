// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nfnetlink"
)

// expression is one step of a rule (linux/netfilter/nf_tables.h): its kind, and its attributes.
type expression struct {
	name string
	data []byte
}

// usualSize is enough for the attributes of most expressions, in bytes.
const usualSize = 64

// numbered returns an expression whose attributes are all numbers: alternately a type and a value.
func numbered(name string, pairs ...uint32) expression {
	a := nfnetlink.AttributesBehind(make([]byte, 0, usualSize))
	for i := 0; i+1 < len(pairs); i += 2 {
		a.Uint32(uint16(pairs[i]), pairs[i+1])
	}
	return expression{name, a.All()}
}

// with returns the expression with a value as an attribute of data.
func (e expression) with(kind uint16, value []byte) expression {
	return e.and(func(a *nfnetlink.Attributes) {
		a.Nest(kind, func() { a.Bytes(unix.NFTA_DATA_VALUE, value) })
	})
}

// and returns the expression with the attributes that write adds. It may reuse the memory of e, so
// the caller extends an expression only once.
func (e expression) and(write func(a *nfnetlink.Attributes)) expression {
	a := nfnetlink.AttributesBehind(e.data)
	write(a)
	e.data = a.All()
	return e
}

// From linux/netfilter/nf_tables.h.
const (
	bitwiseOperation = 6 // NFTA_BITWISE_OP, whose 0 is "mask and xor"
	bitwiseSecond    = 8 // NFTA_BITWISE_SREG2, since Linux 6.13
	bitwiseOr        = 4 // NFT_BITWISE_OR, since Linux 6.13
	tproxyFamily     = 1 // NFTA_TPROXY_FAMILY
	tproxyPort       = 3 // NFTA_TPROXY_REG_PORT
)

// meta loads a field that the kernel keeps of a packet.
func meta(key uint32) expression {
	return numbered("meta", unix.NFTA_META_KEY, key, unix.NFTA_META_DREG, register)
}

func setMeta(key uint32) expression {
	return numbered("meta", unix.NFTA_META_KEY, key, unix.NFTA_META_SREG, register)
}

// conntrack loads a field that the kernel keeps of a packet's connection.
func conntrack(key uint32) expression {
	return numbered("ct", unix.NFTA_CT_KEY, key, unix.NFTA_CT_DREG, register)
}

func setConntrack(key uint32) expression {
	return numbered("ct", unix.NFTA_CT_KEY, key, unix.NFTA_CT_SREG, register)
}

// setZone sets the zone of a direction; of both for AnyDirection.
func setZone(d interception.Direction) expression {
	set := setConntrack(unix.NFT_CT_ZONE)
	if d == interception.AnyDirection {
		return set
	}
	return set.and(func(a *nfnetlink.Attributes) { a.Bytes(unix.NFTA_CT_DIRECTION, []byte{directionNumber(d)}) })
}

// directionNumber returns a direction in the kernel's numbering (enum ip_conntrack_dir).
func directionNumber(d interception.Direction) byte { return byte(d - interception.DirectionOriginal) }

func payload(base, offset, length uint32) expression {
	return numbered("payload", unix.NFTA_PAYLOAD_DREG, register, unix.NFTA_PAYLOAD_BASE, base,
		unix.NFTA_PAYLOAD_OFFSET, offset, unix.NFTA_PAYLOAD_LEN, length)
}

func compare(op uint32, value []byte) expression {
	return numbered("cmp", unix.NFTA_CMP_SREG, register, unix.NFTA_CMP_OP, op).with(unix.NFTA_CMP_DATA, value)
}

// outside matches values below first or above last.
func outside(first, last []byte) expression {
	return numbered("range", unix.NFTA_RANGE_SREG, register, unix.NFTA_RANGE_OP, unix.NFT_RANGE_NEQ).
		with(unix.NFTA_RANGE_FROM_DATA, first).with(unix.NFTA_RANGE_TO_DATA, last)
}

func lookup(set string, id uint32, negated bool) expression {
	flags := uint32(0)
	if negated {
		flags = unix.NFT_LOOKUP_F_INV
	}
	e := numbered("lookup", unix.NFTA_LOOKUP_SET_ID, id, unix.NFTA_LOOKUP_SREG, register, unix.NFTA_LOOKUP_FLAGS, flags)
	return e.and(func(a *nfnetlink.Attributes) { a.Text(unix.NFTA_LOOKUP_SET, set) })
}

// bitwise keeps the bits of mask in the register, and flips those of flip.
func bitwise(mask, flip []byte) expression { return bitwiseIn(register, mask, flip) }

func bitwiseIn(register uint32, mask, flip []byte) expression {
	return numbered("bitwise", unix.NFTA_BITWISE_SREG, register, unix.NFTA_BITWISE_DREG, register, unix.NFTA_BITWISE_LEN, uint32(len(mask))).
		with(unix.NFTA_BITWISE_MASK, mask).with(unix.NFTA_BITWISE_XOR, flip)
}

// mergeWith keeps the bits that the register or the second one has.
func mergeWith(length uint32) expression {
	return numbered("bitwise", unix.NFTA_BITWISE_SREG, register, unix.NFTA_BITWISE_DREG, register, unix.NFTA_BITWISE_LEN, length,
		bitwiseOperation, bitwiseOr, bitwiseSecond, secondRegister)
}

// toNetworkOrder reverses the bytes of a number in host order.
func toNetworkOrder(length uint32) expression {
	return numbered("byteorder", unix.NFTA_BYTEORDER_SREG, register, unix.NFTA_BYTEORDER_DREG, register,
		unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON, unix.NFTA_BYTEORDER_LEN, length, unix.NFTA_BYTEORDER_SIZE, length)
}

func immediate(to uint32, value []byte) expression {
	return numbered("immediate", unix.NFTA_IMMEDIATE_DREG, to).with(unix.NFTA_IMMEDIATE_DATA, value)
}

// The verdicts (linux/netfilter.h; linux/netfilter/nf_tables.h, enum nft_verdicts).
const (
	verdictDrop   = 0
	verdictAccept = 1
	verdictJump   = -3
	verdictReturn = -5
)

// verdict ends the rule with a verdict; chain is the target of a jump.
func verdict(code int32, chain string) expression {
	return numbered("immediate", unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT).and(func(a *nfnetlink.Attributes) {
		a.Nest(unix.NFTA_IMMEDIATE_DATA, func() {
			a.Nest(unix.NFTA_DATA_VERDICT, func() {
				a.Uint32(unix.NFTA_VERDICT_CODE, uint32(code))
				if chain != "" {
					a.Text(unix.NFTA_VERDICT_CHAIN, chain)
				}
			})
		})
	})
}

func redir() expression {
	return numbered("redir", unix.NFTA_REDIR_REG_PROTO_MIN, register, unix.NFTA_REDIR_FLAGS, unix.NF_NAT_RANGE_PROTO_SPECIFIED)
}

// natTo translates to the address in the register and, if port is set, the port in the second one.
func natTo(kind uint32, family byte, port bool) expression {
	pairs := []uint32{unix.NFTA_NAT_TYPE, kind, unix.NFTA_NAT_FAMILY, uint32(family), unix.NFTA_NAT_REG_ADDR_MIN, register}
	if port {
		pairs = append(pairs, unix.NFTA_NAT_REG_PROTO_MIN, secondRegister)
	}
	return numbered("nat", pairs...)
}

func transparentProxy(family byte) expression {
	return numbered("tproxy", tproxyFamily, uint32(family), tproxyPort, register)
}

func reject(kind uint32, code byte) expression {
	return numbered("reject", unix.NFTA_REJECT_TYPE, kind).and(func(a *nfnetlink.Attributes) { a.Bytes(unix.NFTA_REJECT_ICMP_CODE, []byte{code}) })
}

func logged(prefix string) expression {
	return expression{name: "log"}.and(func(a *nfnetlink.Attributes) { a.Text(unix.NFTA_LOG_PREFIX, prefix) })
}
