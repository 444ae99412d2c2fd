// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"encoding/binary"
)

// The kernel stores user data without parsing it. nft writes and reads it as a list of type, length
// and value, with one byte each for the first two; the types are libnftnl's (libnftnl/udata.h).
const (
	ruleComment      = 0 // NFTNL_UDATA_RULE_COMMENT
	setKeyByteOrder  = 0 // NFTNL_UDATA_SET_KEYBYTEORDER
	setComment       = 7 // NFTNL_UDATA_SET_COMMENT
	elementComment   = 0 // NFTNL_UDATA_SET_ELEM_COMMENT
	elementFlags     = 1 // NFTNL_UDATA_SET_ELEM_FLAGS
	elementOpenEnded = 1 // NFTNL_SET_ELEM_F_INTERVAL_OPEN: the interval extends to the last value
)

// The byte orders of a set's key, as nft numbers them.
const (
	hostOrder    = 1
	networkOrder = 2
)

// appendComment appends a NUL-terminated text. A comment of a valid plan fits the length's byte.
func appendComment(data []byte, kind byte, text string) []byte {
	data = append(data, kind, byte(len(text)+1))
	return append(append(data, text...), 0)
}

// commentOf finds a text in user data; "" if there is no text.
func commentOf(data []byte, kind byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		if value := data[2 : 2+int(data[1])]; data[0] == kind {
			text, _, _ := bytes.Cut(value, []byte{0})
			return string(text)
		}
		data = data[2+int(data[1]):]
	}
	return ""
}

// numberData returns user data of one number, in host order.
func numberData(kind byte, number uint32) []byte {
	return binary.NativeEndian.AppendUint32([]byte{kind, 4}, number)
}
