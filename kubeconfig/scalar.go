// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"slices"
	"strconv"
	"strings"
)

// scalar writes valid UTF-8 as a YAML 1.1 and 1.2 string on one line: plain where no reader can take it for anything else, else in double
// quotes. Go's quoted form has only escapes that YAML has too, with the same meaning as long as the text is valid UTF-8.
func scalar(s string) string {
	if isPlain(s) {
		return s
	}
	return strconv.Quote(s)
}

// isPlain reports whether a text needs no quotes: a letter first, so that it is no number, date, indicator or special float; then only
// what has no meaning in YAML; a colon only in front of such a character; and none of the words for booleans and null.
func isPlain(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		inner := '0' <= c && c <= '9' || strings.IndexByte("-_./+=", c) >= 0
		colon := c == ':' && i+1 < len(s)
		if !letter && (i == 0 || !inner && !colon) {
			return false
		}
	}
	words := []string{"", "true", "false", "yes", "no", "on", "off", "y", "n", "null"}
	return !slices.Contains(words, strings.ToLower(s))
}
