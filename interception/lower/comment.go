// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"encoding/hex"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// The form of a comment ([interception.Rule.Comment]): the bytes of its hash, and what a reason may
// be. A test compares them with what plans are allowed.
const (
	commentHash       = 4
	maxReason         = 76
	reasonPunctuation = " .,:()/_-"
)

// ParseComment takes a comment of the form that [interception.Rule.Comment] has apart. It is of use
// as a hint only, and proves nothing. For a text of another form, ok is false and the rest is empty.
func ParseComment(text string) (id interception.RuleID, hash, why string, ok bool) {
	words := strings.SplitN(text, " ", 3)
	if len(words) != 3 || interception.RuleID(words[0]).Validate() != nil || !isReason(words[2]) {
		return "", "", "", false
	}
	if sum, err := hex.DecodeString(words[1]); err != nil || len(sum) != commentHash {
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
