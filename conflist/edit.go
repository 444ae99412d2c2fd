// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Edit is the result of [Insert] and [Remove].
type Edit struct {
	// Out is the new document, or the given slice if nothing changed. The input is never modified.
	Out []byte
	// Changed reports whether Out differs from the given document.
	Changed bool
	// Lifted reports that the given document was a single configuration and Out is a list. A
	// runtime reads lists only from files named .conflist, so the caller must write a new file and
	// remove the old one.
	Lifted bool
}

// Insert puts a plugin's entry into a document, after the first entry of another plugin: the first
// plugin creates the interface, and a chained plugin works on its result (CNI spec, section 4). If
// the plugin has an entry in such a place, the new entry replaces the first of these; otherwise it
// becomes the last of the list. All other entries of the plugin are removed, as [Remove] does. If
// the plugin has exactly one entry, in such a place and with equal content, nothing changes. Bytes
// outside of the plugin's entries, and of the comma and blanks before them, stay unchanged; the new
// text takes indentation, line ends and blanks from the entry beside it, or else from the document.
//
// A single configuration is lifted: it becomes the first entry of a new list, byte for byte and
// with all its keys, and its "cniVersion" (if any) and "name" are copied, as written, to the list's
// head. A runtime that loads the single file makes the same list of it, and gives the entry the
// list's name and version in any case. A single configuration without a name is refused, because no
// runtime would run its list. Text before and after the object stays.
//
// In a list with an empty array the entry goes on the last line break within the brackets, if there
// is one.
//
// Errors: [ErrPlugin] for an invalid entry; a [SyntaxError] for a document that is refused
// ([ErrNoPlugins] is one such reason) or whose result would exceed [MaxSize] or [MaxDepth];
// [ErrStandalone] for the plugin's own single configuration.
func Insert(doc []byte, p Plugin) (Edit, error) {
	if err := p.validate(); err != nil {
		return Edit{}, err
	}
	d, err := parse(doc)
	if err != nil {
		return Edit{}, err
	}
	lifted := d.single
	if lifted {
		if d, err = d.lift(p.Type); err != nil {
			return Edit{}, err
		}
	}
	if d, err = d.withoutLeading(p.Type); err != nil {
		return Edit{}, err
	}
	changes := d.put(p)
	if len(changes) == 0 {
		return Edit{Out: doc}, nil
	}
	out := apply(d.bytes, changes)
	// The node's pods depend on this document, so the result is parsed before it is returned.
	if _, err := parse(out); err != nil {
		return Edit{}, fmt.Errorf("the document with the entry of %q in it: %w", p.Type, err)
	}
	return Edit{Out: out, Changed: true, Lifted: lifted}, nil
}

// Remove removes all entries of a plugin from a list, each with the comma and the blanks that tie
// it to the entry before it (for the first entry, to the one after it). It undoes [Insert]:
// Remove(Insert(x)) is x for every list x without an entry of the plugin. A list or single
// configuration without an entry of the plugin is returned unchanged. If no entry is left, the
// array in Out holds only its blanks; runtimes refuse such a list, and the caller decides what
// happens to the file. A lifted document stays a list.
//
// Errors: a [SyntaxError] for a document that is refused, and [ErrStandalone] for the plugin's own
// single configuration.
func Remove(doc []byte, typ string) (Edit, error) {
	d, err := parse(doc)
	if err != nil {
		return Edit{}, err
	}
	ours := d.of(typ)
	if len(ours) == 0 {
		return Edit{Out: doc}, nil
	}
	if d.single {
		return Edit{}, fmt.Errorf("%w: remove the file", ErrStandalone)
	}
	return Edit{Out: apply(doc, d.cut(ours)), Changed: true}, nil
}

// Find returns a plugin's first entry in a list, or the single configuration if it is the plugin's.
// Body is a copy of the entry's bytes as written. Errors: a [SyntaxError] for a document that is
// refused.
func Find(doc []byte, typ string) (p Plugin, ok bool, err error) {
	d, err := parse(doc)
	if err != nil {
		return Plugin{}, false, err
	}
	ours := d.of(typ)
	if len(ours) == 0 {
		return Plugin{}, false, nil
	}
	return Plugin{Type: typ, Body: bytes.Clone(d.entries[ours[0]].of(doc))}, true, nil
}

type splice struct {
	span
	with []byte
}

// apply makes the splices, which must be in ascending order and must not overlap.
func apply(doc []byte, splices []splice) []byte {
	var out bytes.Buffer
	done := 0
	for _, s := range splices {
		out.Write(doc[done:s.from])
		out.Write(s.with)
		done = s.to
	}
	out.Write(doc[done:])
	return out.Bytes()
}

// withoutLeading returns the document without the plugin's entries if they precede all others.
func (d *document) withoutLeading(typ string) (*document, error) {
	ours := d.of(typ)
	if n := leading(ours); n == 0 || n < len(ours) || n == len(d.entries) {
		return d, nil
	}
	return parse(apply(d.bytes, d.cut(ours)))
}

// put returns the splices after which p's entry is in the list once, and not before all others.
func (d *document) put(p Plugin) []splice {
	ours := d.of(p.Type)
	if len(ours) == 0 {
		return []splice{d.add(p.Body)}
	}
	at := leading(ours)
	if at == len(ours) { // there are no others
		at = 0
	}
	splices := d.cut(ours[:at])
	if kept := d.entries[ours[at]]; !equal(kept.of(d.bytes), p.Body) {
		splices = append(splices, splice{kept.span, layout(p.Body, d.styleOf(kept))})
	}
	return append(splices, d.cut(ours[at+1:])...)
}

func leading(places []int) int {
	n := 0
	for n < len(places) && places[n] == n {
		n++
	}
	return n
}

// add returns the splice that appends an entry. The added text directly follows the last entry, so
// that [document.cut] recognises it. In an empty array the existing blanks could not be
// distinguished from ours, so it adds none.
func (d *document) add(body []byte) splice {
	last := len(d.entries) - 1
	if last < 0 {
		at, style := d.emptyArray()
		return splice{span{at, at}, layout(body, style)}
	}
	e := d.entries[last]
	with := append([]byte{','}, d.separator(last)...)
	return splice{span{e.to, e.to}, append(with, layout(body, d.styleOf(e))...)}
}

// cut returns the splices that remove the entries at the given ascending places.
func (d *document) cut(places []int) []splice {
	lead := leading(places)
	var splices []splice
	switch first := d.entries[0].from; {
	case lead == len(d.entries):
		return []splice{{span: span{first, d.entries[lead-1].to}}}
	case lead > 0:
		splices = append(splices, splice{span: span{first, d.entries[lead].from}})
	}
	for _, i := range places[lead:] {
		splices = append(splices, splice{span: span{d.entries[i-1].to, d.entries[i].to}})
	}
	return splices
}

// lift makes a list of a single configuration, in its style; typ is the plugin to be inserted.
func (d *document) lift(typ string) (*document, error) {
	if d.entries[0].typ == typ {
		return nil, fmt.Errorf("%w: there is no network beside it to chain to", ErrStandalone)
	}
	head, err := d.head()
	if err != nil {
		return nil, err
	}
	st := d.styleOf(d.entries[0])
	if st.newline == "" {
		st.base, st.unit = "", ""
	}
	line := func(level int) string {
		return st.newline + st.base + strings.Repeat(st.unit, level)
	}
	comma := ","
	if st.newline == "" {
		comma += st.blank
	}

	var out bytes.Buffer
	out.Write(d.bytes[:d.top.from])
	out.WriteString("{" + line(1))
	for _, m := range head {
		out.Write(m.key.of(d.bytes))
		out.WriteString(":" + st.blank)
		out.Write(m.value.of(d.bytes))
		out.WriteString(comma + line(1))
	}
	out.WriteString(`"plugins":` + st.blank + "[" + line(2))
	out.Write(d.top.of(d.bytes))
	out.WriteString(line(1) + "]" + line(0) + "}")
	out.Write(d.bytes[d.top.to:])
	return parse(out.Bytes())
}

// head returns the members of a single configuration that a list has too.
func (d *document) head() ([]member, error) {
	var head []member
	for _, name := range []string{"cniVersion", "name"} {
		m, ok := d.keys[name]
		if !ok {
			continue
		}
		switch value := m.value.of(d.bytes); {
		case value[0] != '"':
			return nil, syntaxError(d.bytes, m.value.from, fmt.Errorf("%q is not a string, so no list can have it: correct it", name))
		case name == "name" && string(value) == `""`:
			return nil, syntaxError(d.bytes, m.value.from, errNoName)
		}
		head = append(head, m)
	}
	if _, ok := d.keys["name"]; !ok {
		return nil, syntaxError(d.bytes, d.top.from, errNoName)
	}
	return head, nil
}

var errNoName = errors.New(`the single configuration has no "name", and runtimes refuse a list without one: add it`)
