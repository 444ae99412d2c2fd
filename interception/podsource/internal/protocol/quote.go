// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"strings"
	"unicode"
)

const maxQuoted = 512

// Quoted makes what the other side said fit for an error: printable, in quotes and bounded.
func Quoted(text string) string {
	printable := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '.'
		}
		return r
	}, text)
	if len(printable) > maxQuoted {
		printable = strings.ToValidUTF8(printable[:maxQuoted], "") + "..."
	}
	return `"` + printable + `"`
}
