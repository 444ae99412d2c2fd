// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// The kernel keeps user data without looking at it. nft writes and reads it as a list of type, length and value, a byte
// each for the first two; the types are libnftnl's (libnftnl/udata.h).
const (
	ruleComment      = 0 // NFTNL_UDATA_RULE_COMMENT
	setKeyByteOrder  = 0 // NFTNL_UDATA_SET_KEYBYTEORDER
	setComment       = 7 // NFTNL_UDATA_SET_COMMENT
	elementComment   = 0 // NFTNL_UDATA_SET_ELEM_COMMENT
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

// commentOf finds a text among user data; "" when there is none.
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

// numberData is user data of one number, in the order of the host.
func numberData(kind byte, number uint32) []byte {
	return binary.NativeEndian.AppendUint32([]byte{kind, 4}, number)
}

// The form of a comment ([interception.Rule.Comment]): the length of its hash, and what a reason
// may be. A test compares this with what plans are allowed.
const (
	commentHashBytes  = 4
	maxReason         = 76
	reasonPunctuation = " .,:()/_-"
)

// parseComment takes a comment of a rule apart. It is of use as a hint only, and nothing is proved
// by it. ok is false for a text of another form; id and why are valid ones otherwise.
func parseComment(text string) (id interception.RuleID, hash, why string, ok bool) {
	words := strings.SplitN(text, " ", 3)
	if len(words) != 3 {
		return "", "", "", false
	}
	sum, err := hex.DecodeString(words[1])
	if err != nil || len(sum) != commentHashBytes || interception.RuleID(words[0]).Validate() != nil || !isReason(words[2]) {
		return "", "", "", false
	}
	return interception.RuleID(words[0]), words[1], words[2], true
}

// isReason reports whether a plan may have the text as a reason.
func isReason(text string) bool {
	for _, r := range text {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !letter && !strings.ContainsRune(reasonPunctuation, r) {
			return false
		}
	}
	return text != "" && len(text) <= maxReason
}
