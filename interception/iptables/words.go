// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"strings"
)

// splitWords takes a line of iptables-save apart as iptables-restore does: words are separated by blanks, a part in double quotes may have
// blanks, and in it a backslash stands before a quote, an apostrophe or a backslash (xtables_save_string).
func splitWords(line string) ([]string, error) {
	var words []string
	for rest := strings.TrimLeft(line, " \t"); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		word, behind, err := cutWord(rest)
		if err != nil {
			return nil, err
		}
		words, rest = append(words, word), behind
	}
	return words, nil
}

// cutWord takes the first word off a text that begins with one.
func cutWord(text string) (word, rest string, err error) {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			quoted = !quoted
			continue
		case c == '\\' && quoted && i+1 < len(text):
			i++
		case (c == ' ' || c == '\t') && !quoted:
			return b.String(), text[i:], nil
		}
		b.WriteByte(text[i])
	}
	if quoted {
		return "", "", errors.New("a quote is not closed")
	}
	return b.String(), "", nil
}

// jumpTarget is where a rule leads to with -j or -g: a chain, or a target of iptables; "" when it has neither. The words may come from
// anybody: a "-j" that is the value of an option, such as a comment, has an option or nothing behind it, and not a name.
func jumpTarget(words []string) string {
	for i := len(words) - 2; i >= 0; i-- {
		if (words[i] == "-j" || words[i] == "-g") && !strings.HasPrefix(words[i+1], "-") && words[i+1] != "!" {
			return words[i+1]
		}
	}
	return ""
}

// commentOf is the first comment of a rule; "" when there is none.
func commentOf(words []string) string {
	for i, word := range words {
		if word == "--comment" && i+1 < len(words) {
			return words[i+1]
		}
	}
	return ""
}
