// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
)

// key is the type of what a condition compares.
type key struct {
	// kind is nft's number for the type (enum datatypes in its datatype.h). The kernel only keeps it, for those who list a set.
	kind uint32
	// length is in bytes.
	length uint32
	// hostOrder: the kernel has the value in the order of the host, not as on the wire.
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

// value is a number, given in network order, as the kernel has it when it compares for equality.
func (k key) value(network []byte) []byte {
	if !k.hostOrder || k.length > 4 {
		return network // a name has no order
	}
	return binary.NativeEndian.AppendUint32(nil, binary.BigEndian.Uint32(network))
}

// network is a number in network order, in the length of the key.
func (k key) network(number uint32) []byte {
	if k.length == 2 {
		return binary.BigEndian.AppendUint16(nil, uint16(number))
	}
	return binary.BigEndian.AppendUint32(nil, number)
}
