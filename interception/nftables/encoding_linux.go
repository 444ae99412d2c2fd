// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/nfnetlink"
)

// expression is one step of a rule (linux/netfilter/nf_tables.h): its kind, and its attributes.
type expression struct {
	name string
	data []byte
}

func encoded(name string, fill func(a *nfnetlink.Attributes)) expression {
	var a nfnetlink.Attributes
	fill(&a)
	return expression{name, a.All()}
}

// From linux/netfilter/nf_tables.h.
const (
	bitwiseOperation = 6 // NFTA_BITWISE_OP, whose 0 is "mask and xor"
	tproxyFamily     = 1 // NFTA_TPROXY_FAMILY
	tproxyPort       = 3 // NFTA_TPROXY_REG_PORT
)

// data writes a value as an attribute of data.
func data(a *nfnetlink.Attributes, kind uint16, value []byte) {
	a.Nest(kind, func() { a.Bytes(unix.NFTA_DATA_VALUE, value) })
}

// meta loads a field that the kernel knows about a packet.
func meta(key uint32) expression {
	return encoded("meta", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_META_KEY, key)
		a.Uint32(unix.NFTA_META_DREG, register)
	})
}

func setMeta(key uint32) expression {
	return encoded("meta", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_META_KEY, key)
		a.Uint32(unix.NFTA_META_SREG, register)
	})
}

// conntrack loads a field that the kernel knows about a packet's connection.
func conntrack(key uint32) expression {
	return encoded("ct", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_CT_KEY, key)
		a.Uint32(unix.NFTA_CT_DREG, register)
	})
}

func setConntrack(key uint32) expression {
	return encoded("ct", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_CT_KEY, key)
		a.Uint32(unix.NFTA_CT_SREG, register)
	})
}

// payload loads bytes of a header.
func payload(base, offset, length uint32) expression {
	return encoded("payload", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_PAYLOAD_DREG, register)
		a.Uint32(unix.NFTA_PAYLOAD_BASE, base)
		a.Uint32(unix.NFTA_PAYLOAD_OFFSET, offset)
		a.Uint32(unix.NFTA_PAYLOAD_LEN, length)
	})
}

func compare(op uint32, value []byte) expression {
	return encoded("cmp", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_CMP_SREG, register)
		a.Uint32(unix.NFTA_CMP_OP, op)
		data(a, unix.NFTA_CMP_DATA, value)
	})
}

// outside is met by values that are not from first to last.
func outside(first, last []byte) expression {
	return encoded("range", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_RANGE_SREG, register)
		a.Uint32(unix.NFTA_RANGE_OP, unix.NFT_RANGE_NEQ)
		data(a, unix.NFTA_RANGE_FROM_DATA, first)
		data(a, unix.NFTA_RANGE_TO_DATA, last)
	})
}

func lookup(set string, id uint32, negated bool) expression {
	return encoded("lookup", func(a *nfnetlink.Attributes) {
		a.Text(unix.NFTA_LOOKUP_SET, set)
		a.Uint32(unix.NFTA_LOOKUP_SET_ID, id)
		a.Uint32(unix.NFTA_LOOKUP_SREG, register)
		if negated {
			a.Uint32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
		}
	})
}

// bitwise keeps the bits of mask in the register, and flips those of flip.
func bitwise(mask, flip []byte) expression {
	return encoded("bitwise", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_BITWISE_SREG, register)
		a.Uint32(unix.NFTA_BITWISE_DREG, register)
		a.Uint32(unix.NFTA_BITWISE_LEN, uint32(len(mask)))
		data(a, unix.NFTA_BITWISE_MASK, mask)
		data(a, unix.NFTA_BITWISE_XOR, flip)
	})
}

// toNetworkOrder turns a number in the order of the host round.
func toNetworkOrder(length uint32) expression {
	return encoded("byteorder", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_BYTEORDER_SREG, register)
		a.Uint32(unix.NFTA_BYTEORDER_DREG, register)
		a.Uint32(unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON)
		a.Uint32(unix.NFTA_BYTEORDER_LEN, length)
		a.Uint32(unix.NFTA_BYTEORDER_SIZE, length)
	})
}

func immediate(to uint32, value []byte) expression {
	return encoded("immediate", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_IMMEDIATE_DREG, to)
		data(a, unix.NFTA_IMMEDIATE_DATA, value)
	})
}

// The verdicts (linux/netfilter.h; linux/netfilter/nf_tables.h, enum nft_verdicts).
const (
	verdictDrop   = 0
	verdictAccept = 1
	verdictJump   = -3
	verdictReturn = -5
)

// verdict says what is to be done; chain is where a jump leads to.
func verdict(code int32, chain string) expression {
	return encoded("immediate", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
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

// redir redirects to the port in the register.
func redir() expression {
	return encoded("redir", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_REDIR_REG_PROTO_MIN, register)
		a.Uint32(unix.NFTA_REDIR_FLAGS, unix.NF_NAT_RANGE_PROTO_SPECIFIED)
	})
}

// natTo translates to the address in the register and, with a port, that in the second one.
func natTo(kind uint32, family byte, port bool) expression {
	return encoded("nat", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_NAT_TYPE, kind)
		a.Uint32(unix.NFTA_NAT_FAMILY, uint32(family))
		a.Uint32(unix.NFTA_NAT_REG_ADDR_MIN, register)
		if port {
			a.Uint32(unix.NFTA_NAT_REG_PROTO_MIN, secondRegister)
		}
	})
}

// transparentProxy is at the port in the register.
func transparentProxy(family byte) expression {
	return encoded("tproxy", func(a *nfnetlink.Attributes) {
		a.Uint32(tproxyFamily, uint32(family))
		a.Uint32(tproxyPort, register)
	})
}

// reject answers by a message of a kind.
func reject(kind uint32, code byte) expression {
	return encoded("reject", func(a *nfnetlink.Attributes) {
		a.Uint32(unix.NFTA_REJECT_TYPE, kind)
		a.Bytes(unix.NFTA_REJECT_ICMP_CODE, []byte{code})
	})
}

// logged goes to the kernel's log.
func logged(prefix string) expression {
	return encoded("log", func(a *nfnetlink.Attributes) { a.Text(unix.NFTA_LOG_PREFIX, prefix) })
}
