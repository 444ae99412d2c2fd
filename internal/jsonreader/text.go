// SPDX-License-Identifier: Apache-2.0

package jsonreader

import (
	"strconv"
	"unicode/utf8"
)

// String reads a text.
func (r *Reader) String() string {
	begin, plain := r.quoted()
	if r.failed {
		return ""
	}
	text := r.text[begin : r.at-1]
	if plain {
		return string(text)
	}
	decoded, ok := unescape(text)
	if !ok {
		r.fail()
	}
	return string(decoded)
}

func (r *Reader) skipString() {
	begin, plain := r.quoted()
	if r.failed || plain {
		return
	}
	if _, ok := unescape(r.text[begin : r.at-1]); !ok {
		r.fail()
	}
}

// quoted goes behind a text, which begins at begin. plain means that it is what stands there.
func (r *Reader) quoted() (begin int, plain bool) {
	r.expect('"')
	begin, plain = r.at, true
	for r.at < len(r.text) {
		c := r.text[r.at]
		r.at++
		switch {
		case c == '"':
			return begin, plain
		case c == '\\':
			plain = false
			r.at++
		case c < ' ':
			r.fail()
		case c >= utf8.RuneSelf:
			plain = false // who knows whether it is UTF-8
		}
	}
	r.fail() // nothing has ended it
	return begin, false
}

// unescape is the text with its escapes replaced. ok is false where one isn't understood, or bytes are no UTF-8.
func unescape(text []byte) (plain []byte, ok bool) {
	if !utf8.Valid(text) {
		return nil, false
	}
	plain = make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			plain = append(plain, text[i])
			continue
		}
		i++ // quoted has seen one behind it
		if text[i] == 'u' {
			r, err := strconv.ParseUint(string(text[i+1:min(len(text), i+5)]), 16, 16)
			if err != nil || len(text) < i+5 || !utf8.ValidRune(rune(r)) {
				return nil, false
			}
			plain = utf8.AppendRune(plain, rune(r))
			i += 4
			continue
		}
		c, known := escaped(text[i])
		if !known {
			return nil, false
		}
		plain = append(plain, c)
	}
	return plain, true
}

// escaped is what a letter behind a backslash stands for.
func escaped(letter byte) (c byte, ok bool) {
	switch letter {
	case '"', '\\', '/':
		return letter, true
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	default:
		return 0, false
	}
}
