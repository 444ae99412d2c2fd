// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/hex"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

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
