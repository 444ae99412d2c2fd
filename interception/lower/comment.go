// SPDX-License-Identifier: Apache-2.0

package lower

import (
	"encoding/hex"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// The form of a comment ([interception.Rule.Comment]): the bytes of its hash, and the limits of a
// reason. A test compares them with those of plans.
const (
	commentHash       = 4
	maxReason         = 76
	reasonPunctuation = " .,:()/_-"
)

// ParseComment parses a comment of the form of [interception.Rule.Comment]. The result is a hint
// and proves nothing. For text of another form, ok is false and the rest is empty.
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

// isReason reports whether the text is valid as a plan's reason.
func isReason(text string) bool {
	for _, r := range text {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		if !letter && !strings.ContainsRune(reasonPunctuation, r) {
			return false
		}
	}
	return text != "" && len(text) <= maxReason
}
