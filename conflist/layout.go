// SPDX-License-Identifier: Apache-2.0

package conflist

import "bytes"

// layout writes a valid object in a style: its tokens as they are, the blanks between them anew.
func layout(object []byte, st style) []byte {
	w := layoutWriter{style: st}
	// A result above MaxSize is refused anyway: there is no need to write all of it.
	for i := 0; i < len(object) && w.out.Len() <= MaxSize; i++ {
		if !isBlank(object[i]) {
			i = w.token(object, i)
		}
	}
	return w.out.Bytes()
}

type layoutWriter struct {
	style
	out   bytes.Buffer
	depth int
}

// token writes what starts at an offset, and gives the offset of its last byte.
func (w *layoutWriter) token(object []byte, i int) int {
	switch c := object[i]; c {
	case '"':
		s := &scanner{doc: object, pos: i}
		_ = s.str() // cannot fail: the object is valid
		w.out.Write(object[i:s.pos])
		return s.pos - 1
	case '{', '[':
		w.out.WriteByte(c)
		if next := bytes.TrimLeft(object[i+1:], blanks); next[0] == '}' || next[0] == ']' {
			w.out.WriteByte(next[0])
			return len(object) - len(next)
		}
		w.depth++
		w.line()
	case '}', ']':
		w.depth--
		w.line()
		w.out.WriteByte(c)
	case ',':
		w.out.WriteByte(c)
		if w.newline == "" {
			w.out.WriteString(w.blank)
		}
		w.line()
	case ':':
		w.out.WriteString(":" + w.blank)
	default: // a byte of a number, or of true, false or null
		w.out.WriteByte(c)
	}
	return i
}

// line starts a new line, if the style has lines.
func (w *layoutWriter) line() {
	if w.newline == "" {
		return
	}
	w.out.WriteString(w.newline + w.base)
	for range w.depth {
		w.out.WriteString(w.unit)
	}
}
