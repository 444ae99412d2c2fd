// SPDX-License-Identifier: Apache-2.0

package nftables

import "encoding/binary"

// The kernel keeps user data without looking at it. nft writes and reads it as a list of type, length and value, a byte
// each for the first two; the types are libnftnl's (libnftnl/udata.h).
const (
	ruleComment      = 0 // NFTNL_UDATA_RULE_COMMENT
	setKeyByteOrder  = 0 // NFTNL_UDATA_SET_KEYBYTEORDER
	setComment       = 7 // NFTNL_UDATA_SET_COMMENT
	elementFlags     = 1 // NFTNL_UDATA_SET_ELEM_FLAGS
	elementOpenEnded = 1 // NFTNL_SET_ELEM_F_INTERVAL_OPEN: the interval reaches to the last value
)

// The byte orders of a set's key, as nft numbers them.
const (
	hostOrder    = 1
	networkOrder = 2
)

// appendComment appends a text with the NUL that ends it. A comment of a valid plan fits the length's byte.
func appendComment(data []byte, kind byte, text string) []byte {
	data = append(data, kind, byte(len(text)+1))
	return append(append(data, text...), 0)
}

// appendNumber appends a number in the order of the host.
func appendNumber(data []byte, kind byte, number uint32) []byte {
	return binary.NativeEndian.AppendUint32(append(data, kind, 4), number)
}
