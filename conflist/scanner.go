// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// span is the part of a document from one offset up to, and not including, another.
type span struct{ from, to int }

func (s span) of(doc []byte) []byte { return doc[s.from:s.to] }

// scanner reads JSON (RFC 8259) with positions, which encoding/json does not provide. It accepts
// what encoding/json accepts, within [MaxSize] and [MaxDepth], because runtimes use encoding/json:
// where this package and a runtime differ on a document, that must be a decision.
type scanner struct {
	doc   []byte
	pos   int
	depth int
}

func (s *scanner) fail(format string, args ...any) error { return s.failAt(s.pos, format, args...) }

func (s *scanner) failAt(offset int, format string, args ...any) error {
	return syntaxError(s.doc, offset, fmt.Errorf(format, args...))
}

// unexpected returns the error for the byte at the position, or for the end of the document.
func (s *scanner) unexpected(want string) error {
	if s.pos >= len(s.doc) {
		return s.fail("the document ends where %s should be", want)
	}
	r, _ := utf8.DecodeRune(s.doc[s.pos:])
	return s.fail("found %q where %s should be", r, want)
}

// peek returns the byte at the position, or 0 at the end; 0 is never valid outside of strings.
func (s *scanner) peek() byte {
	if s.pos >= len(s.doc) {
		return 0
	}
	return s.doc[s.pos]
}

// accept steps over the byte c if it is next.
func (s *scanner) accept(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

// skip steps over blanks.
func (s *scanner) skip() {
	s.pos = len(s.doc) - len(bytes.TrimLeft(s.doc[s.pos:], blanks))
}

// blanks are what JSON allows between tokens.
const blanks = " \t\r\n"

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// value steps over one value, which must start at the current position.
func (s *scanner) value() (span, error) {
	from := s.pos
	var err error
	switch c := s.peek(); {
	case c == '{':
		return s.object(nil)
	case c == '[':
		return s.array(nil)
	case c == '"':
		err = s.str()
	case c == '-' || isDigit(c):
		err = s.number()
	default:
		err = s.literal()
	}
	return span{from, s.pos}, err
}

// object steps over an object and calls visit, if not nil, for every member.
func (s *scanner) object(visit func(key, value span) error) (span, error) {
	return s.container('{', '}', "a key or }", func() error {
		key := span{from: s.pos}
		if s.peek() != '"' {
			return s.unexpected("a key")
		}
		if err := s.str(); err != nil {
			return err
		}
		key.to = s.pos
		s.skip()
		if !s.accept(':') {
			return s.unexpected("a colon")
		}
		s.skip()
		value, err := s.value()
		if err != nil || visit == nil {
			return err
		}
		return visit(key, value)
	})
}

// array steps over an array and calls visit, if not nil, for every element.
func (s *scanner) array(visit func(element span) error) (span, error) {
	return s.container('[', ']', "a value or ]", func() error {
		element, err := s.value()
		if err != nil || visit == nil {
			return err
		}
		return visit(element)
	})
}

// container steps over two brackets and the comma-separated parts between them.
func (s *scanner) container(open, end byte, want string, part func() error) (span, error) {
	from := s.pos
	if !s.accept(open) {
		return span{}, s.unexpected(string(rune(open)))
	}
	if s.depth++; s.depth > MaxDepth {
		return span{}, s.failAt(from, "nested deeper than %d levels: simplify the configuration", MaxDepth)
	}
	defer func() { s.depth-- }()

	s.skip()
	if s.accept(end) {
		return span{from, s.pos}, nil
	}
	for {
		if s.pos >= len(s.doc) {
			return span{}, s.unexpected(want)
		}
		if err := part(); err != nil {
			return span{}, err
		}
		s.skip()
		switch {
		case s.accept(end):
			return span{from, s.pos}, nil
		case s.accept(','):
			s.skip()
		default:
			return span{}, s.unexpected(fmt.Sprintf("a comma or %c", end))
		}
	}
}

// str steps over a string. Bytes that are not UTF-8 pass, as they do with encoding/json.
func (s *scanner) str() error {
	from := s.pos
	for s.pos++; s.pos < len(s.doc); s.pos++ {
		switch c := s.doc[s.pos]; {
		case c == '"':
			s.pos++
			return nil
		case c < ' ':
			return s.fail("control character %q in a string: write it as an escape", c)
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		}
	}
	return s.failAt(from, "this string has no end: add the closing quote")
}

// escape steps from a backslash to the last byte of its escape sequence.
func (s *scanner) escape() error {
	from := s.pos
	s.pos++
	if bytes.IndexByte([]byte(`"\/bfnrt`), s.peek()) >= 0 {
		return nil
	}
	if s.peek() != 'u' {
		return s.failAt(from, `invalid escape: a backslash in a string is written \\`)
	}
	for range 4 {
		s.pos++
		if !isHex(s.peek()) {
			return s.failAt(from, `invalid escape: \u takes four hexadecimal digits`)
		}
	}
	return nil
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// number steps over a number of any size.
func (s *scanner) number() error {
	s.accept('-')
	if !s.accept('0') {
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.accept('.') {
		if err := s.digits(); err != nil {
			return err
		}
	}
	if s.accept('e') || s.accept('E') {
		if !s.accept('+') {
			s.accept('-')
		}
		return s.digits()
	}
	return nil
}

// digits steps over one or more digits.
func (s *scanner) digits() error {
	if !isDigit(s.peek()) {
		return s.unexpected("a digit")
	}
	for isDigit(s.peek()) {
		s.pos++
	}
	return nil
}

func (s *scanner) literal() error {
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.doc[s.pos:], []byte(word)) {
			s.pos += len(word)
			return nil
		}
	}
	return s.unexpected("a value")
}

// whole steps over a document that is a single object, and calls visit for its members.
func (s *scanner) whole(visit func(key, value span) error) (span, error) {
	if len(s.doc) > MaxSize {
		return span{}, s.failAt(MaxSize, "larger than %d bytes: this is not a network configuration", MaxSize)
	}
	if bytes.HasPrefix(s.doc, []byte("\ufeff")) {
		return span{}, s.fail("the document starts with a byte order mark, which no runtime accepts: save it without")
	}
	s.skip()
	top, err := s.object(visit)
	if err != nil {
		return span{}, err
	}
	s.skip()
	if s.pos < len(s.doc) {
		return span{}, s.unexpected("the end of the document")
	}
	return top, nil
}

// text decodes a string token that the scanner has passed.
func text(token []byte) string {
	if bytes.IndexByte(token, '\\') < 0 && utf8.Valid(token) {
		return string(token[1 : len(token)-1])
	}
	var s string
	_ = json.Unmarshal(token, &s) // cannot fail: the token is valid
	return s
}

// nonEmpty decodes a value that must be a non-empty string.
func nonEmpty(token []byte) (string, error) {
	if token[0] != '"' {
		return "", errors.New("is not a string")
	}
	s := text(token)
	if s == "" {
		return "", errors.New("is empty")
	}
	return s, nil
}
