// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// describe is what expressions do, as text for people: their names with what is easily said of them. Whatever is different is a different
// text, as the rest follows in hexadecimal.
func describe(expressions []expression) string {
	var words []string
	for _, e := range expressions {
		if e.name != "counter" { // which changes all the time, and nothing by itself
			words = append(words, e.String())
		}
	}
	if words == nil {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

// The attributes of the expressions that carry extensions of iptables (linux/netfilter/nf_tables_compat.h).
const (
	extensionName = 1 // NFTA_TARGET_NAME, NFTA_MATCH_NAME
	extensionInfo = 3 // NFTA_TARGET_INFO, NFTA_MATCH_INFO
)

// String is such as "lookup @blocked", "target REDIRECT 0a0b" or "queue".
func (e expression) String() string {
	a := parseAttributes(e.data)
	switch e.name {
	case "immediate":
		return e.immediateText(a)
	case "target", "match":
		return fmt.Sprintf("%s %s %s", e.name, printable(a.text(extensionName)), hex.EncodeToString(a.take(extensionInfo)))
	case "lookup":
		return e.lookupText(a)
	case "cmp":
		op := a.number(unix.NFTA_CMP_OP)
		if ops := []string{"==", "!=", "<", "<=", ">", ">="}; int(op) < len(ops) {
			return fmt.Sprintf("cmp %s 0x%s", ops[op], hex.EncodeToString(a.value(unix.NFTA_CMP_DATA)))
		}
	}
	if len(e.data) == 0 {
		return printable(e.name)
	}
	return printable(e.name) + " 0x" + hex.EncodeToString(e.data)
}

func (e expression) immediateText(a *attributes) string {
	register, data := a.number(unix.NFTA_IMMEDIATE_DREG), parseAttributes(a.take(unix.NFTA_IMMEDIATE_DATA))
	if !data.has(unix.NFTA_DATA_VERDICT) {
		return fmt.Sprintf("0x%s into register %d", hex.EncodeToString(data.take(unix.NFTA_DATA_VALUE)), register)
	}
	verdict := parseAttributes(data.take(unix.NFTA_DATA_VERDICT))
	code, chain := int32(verdict.number(unix.NFTA_VERDICT_CODE)), verdict.text(unix.NFTA_VERDICT_CHAIN)
	word, ok := map[int32]string{
		verdictDrop: "drop", verdictAccept: "accept", verdictReturn: "return", verdictJump: "jump", -4: "goto", -1: "continue", 3: "queue",
	}[code]
	if !ok {
		word = fmt.Sprintf("verdict 0x%x", uint32(code))
	}
	if chain != "" {
		word += " " + printable(chain)
	}
	return word
}

func (e expression) lookupText(a *attributes) string {
	text := "lookup @" + printable(a.text(unix.NFTA_LOOKUP_SET))
	if a.number(unix.NFTA_LOOKUP_FLAGS) != 0 {
		text = "lookup not @" + printable(a.text(unix.NFTA_LOOKUP_SET))
	}
	if a.has(unix.NFTA_LOOKUP_DREG) {
		text += " as a map"
	}
	return text
}

// printable is text from the kernel, which anybody may have chosen: as it is or, with anything but plain letters in it, quoted.
func printable(text string) string {
	if quoted := strconv.QuoteToASCII(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}
