// SPDX-License-Identifier: Apache-2.0

package jsonreader

import (
	"strconv"
	"strings"
)

// Reader reads one JSON text (RFC 8259) from its beginning to its end. What it doesn't understand ends the reading: all that is
// read behind it is empty.
type Reader struct {
	text   []byte
	at     int // the next byte
	depth  int
	failed bool
}

// maxDepth is how deep values may be nested; encoding/json takes ten times that.
const maxDepth = 1000

// Read reads a text, which is one value, by a function that reads that value, and reports whether all of it was understood. What has been read
// of a text that wasn't is of no use.
func Read(text []byte, value func(*Reader)) bool {
	r := &Reader{text: text}
	value(r)
	r.blanks()
	return !r.failed && r.at == len(text)
}

// Member is a member of an object that is of interest.
type Member struct {
	// Name is its name.
	Name string
	// To is where its value goes: a *string, *bool, *int64, **int64, *[]string, *map[string]string, or a func(*Reader) that reads it.
	To any
}

// Object reads an object. The members are those of interest, at most 64; others are passed over.
func (r *Reader) Object(members ...Member) {
	var seen uint64
	r.each('{', '}', func() {
		name := r.key()
		i := find(members, name)
		switch {
		case i < 0:
			r.Skip()
		case members[i].Name != name, seen&(1<<i) != 0:
			r.fail() // it is in another case, or there twice
		default:
			seen |= 1 << i
			r.value(members[i].To)
		}
	})
}

// find prefers the very name, and takes one in another case otherwise; it is -1 where there is none.
func find(members []Member, name string) int {
	for i := range members {
		if members[i].Name == name {
			return i
		}
	}
	for i := range members {
		if strings.EqualFold(members[i].Name, name) {
			return i
		}
	}
	return -1
}

func (r *Reader) value(to any) {
	switch to := to.(type) {
	case *string:
		*to = r.String()
	case *bool:
		*to = r.bool()
	case *int64:
		*to = r.int()
	case **int64:
		number := r.int()
		*to = &number
	case *[]string:
		*to = []string{}
		r.List(func() { *to = append(*to, r.String()) })
	case *map[string]string:
		*to = map[string]string{}
		r.Map(func(name string) { (*to)[name] = r.String() })
	case func(*Reader):
		to(r)
	default:
		r.fail()
	}
}

// List reads a list. element reads each of its values.
func (r *Reader) List(element func()) { r.each('[', ']', element) }

// Map reads an object of any names. member reads the value of each.
func (r *Reader) Map(member func(name string)) {
	r.each('{', '}', func() { member(r.key()) })
}

// each calls element for all that stands between two brackets, separated by commas.
func (r *Reader) each(first, last byte, element func()) {
	r.depth++
	if r.depth > maxDepth {
		r.fail()
	}
	r.expect(first)
	for more := !r.next(last); more && !r.failed; {
		element()
		if more = r.next(','); !more {
			r.expect(last)
		}
	}
	r.depth--
}

// key reads the name of a member.
func (r *Reader) key() string {
	name := r.String()
	r.expect(':')
	return name
}

// Raw reads any value, and returns it as it stands there.
func (r *Reader) Raw() []byte {
	r.blanks()
	begin := r.at
	if r.Skip(); r.failed {
		return nil
	}
	return append([]byte(nil), r.text[begin:r.at]...)
}

// Skip reads any value, and forgets it.
func (r *Reader) Skip() {
	switch r.blanks(); r.peek() {
	case '{':
		r.each('{', '}', func() {
			r.skipString()
			r.expect(':')
			r.Skip()
		})
	case '[':
		r.each('[', ']', r.Skip)
	case '"':
		r.skipString()
	case 't':
		r.word("true")
	case 'f':
		r.word("false")
	case 'n':
		r.word("null")
	default:
		r.number()
	}
}

func (r *Reader) bool() bool {
	r.blanks()
	if r.peek() == 't' {
		r.word("true")
		return true
	}
	r.word("false")
	return false
}

// int reads a whole number.
func (r *Reader) int() int64 {
	r.blanks()
	n, err := strconv.ParseInt(string(r.number()), 10, 64)
	if err != nil { // a fraction, an exponent, or too many digits
		r.fail()
	}
	return n
}

// number reads a number.
func (r *Reader) number() []byte {
	begin := r.at
	r.skipByte('-')
	if !r.skipByte('0') {
		r.digits()
	}
	if r.skipByte('.') {
		r.digits()
	}
	if r.skipByte('e') || r.skipByte('E') {
		if !r.skipByte('+') {
			r.skipByte('-')
		}
		r.digits()
	}
	if r.failed {
		return nil
	}
	return r.text[begin:r.at]
}

// digits reads one or more.
func (r *Reader) digits() {
	begin := r.at
	for c := r.peek(); c >= '0' && c <= '9'; c = r.peek() {
		r.at++
	}
	if r.at == begin {
		r.fail()
	}
}

func (r *Reader) word(word string) {
	if !strings.HasPrefix(string(r.text[r.at:min(len(r.text), r.at+len(word))]), word) {
		r.fail()
		return
	}
	r.at += len(word)
}

func (r *Reader) blanks() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// peek is the next byte; 0 at the end.
func (r *Reader) peek() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

func (r *Reader) skipByte(c byte) bool {
	if r.at >= len(r.text) || r.text[r.at] != c {
		return false
	}
	r.at++
	return true
}

// next reads a byte, behind blanks, if it is there.
func (r *Reader) next(c byte) bool {
	r.blanks()
	return r.skipByte(c)
}

func (r *Reader) expect(c byte) {
	if !r.next(c) {
		r.fail()
	}
}

// fail goes to the end, where nothing is understood any more.
func (r *Reader) fail() { r.failed, r.at = true, len(r.text) }
