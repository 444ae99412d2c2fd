// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"strings"
)

// style is the layout of the document around an entry.
type style struct {
	newline string // "\n" or "\r\n"; empty if the entry is on one line
	base    string // the indentation of the line that the entry starts on
	unit    string // what one level of nesting adds to it
	blank   string // the blanks after a colon, and after a comma within a line
}

// maxIndent limits the imitated indentation, so that a document of blanks cannot explode.
const maxIndent = 64

// styleOf returns the style of an entry, for an entry that replaces or follows it.
func (d *document) styleOf(e entry) style {
	return style{
		newline: newlineIn(e.of(d.bytes)),
		base:    d.indentAt(e.from),
		unit:    d.unit(e.span),
		blank:   blankIf(e.spaced),
	}
}

// emptyArray returns the place for the first entry of an empty "plugins" array, and its style.
func (d *document) emptyArray() (int, style) {
	plugins := d.keys["plugins"].value
	blanks := d.bytes[plugins.from+1 : plugins.to-1]
	at := plugins.from + 1
	if i := bytes.LastIndexByte(blanks, '\n'); i >= 0 {
		at += len(bytes.TrimSuffix(blanks[:i], []byte("\r")))
	}
	return at, style{
		newline: newlineIn(d.top.of(d.bytes)),
		base:    d.indentAt(at),
		unit:    d.unit(d.top),
		blank:   blankIf(isBlank(d.bytes[plugins.from-1])),
	}
}

// separator returns the blanks between the comma after the last entry and a new entry: a line break
// if the last entry starts a line, otherwise the blanks between the last entry and the one before.
func (d *document) separator(last int) string {
	e := d.entries[last]
	before := d.bytes[:e.from]
	gap := before[len(bytes.TrimRight(before, blanks)):]
	if newline := newlineIn(gap); newline != "" {
		return newline + d.indentAt(e.from)
	}
	if last > 0 && len(gap) <= maxIndent {
		return string(gap)
	}
	return blankIf(e.spaced)
}

// indentAt returns the blanks from the line's start to an offset, or none if they are too long.
func (d *document) indentAt(offset int) string {
	line := d.bytes[1+bytes.LastIndexByte(d.bytes[:offset], '\n') : offset]
	indent := line[:len(line)-len(bytes.TrimLeft(line, blanks))]
	if len(indent) > maxIndent {
		return ""
	}
	return string(indent)
}

// unit returns what one level of nesting adds to the indentation: that of the object's first
// member, or that of the document, or two blanks.
func (d *document) unit(object span) string {
	for _, o := range []span{object, d.top} {
		first := o.from + 1
		for isBlank(d.bytes[first]) {
			first++
		}
		if newlineIn(d.bytes[o.from:first]) == "" {
			continue
		}
		// The object's own level is where its bracket closes: a lifted object starts further right.
		level := d.indentAt(o.to - 1)
		if unit, ok := strings.CutPrefix(d.indentAt(first), level); ok {
			return unit
		}
	}
	return "  "
}

// newlineIn returns the last line break of a text, or nothing.
func newlineIn(text []byte) string {
	switch i := bytes.LastIndexByte(text, '\n'); {
	case i < 0:
		return ""
	case i > 0 && text[i-1] == '\r':
		return "\r\n"
	default:
		return "\n"
	}
}

func blankIf(spaced bool) string {
	if spaced {
		return " "
	}
	return ""
}

// layout writes a valid object in a style: the tokens unchanged, with new blanks between them.
func layout(object []byte, st style) []byte {
	w := layoutWriter{style: st}
	// A result above MaxSize is refused anyway, so writing may stop.
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

// token writes the token at an offset, and returns the offset of its last byte.
func (w *layoutWriter) token(object []byte, i int) int {
	switch c := object[i]; c {
	case '"':
		end := i + 1
		for ; object[end] != '"'; end++ {
			if object[end] == '\\' {
				end++
			}
		}
		w.out.Write(object[i : end+1])
		return end
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
