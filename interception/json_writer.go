// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"encoding/json"
	"strconv"
)

// jsonWriter writes a plan, and its tables in the form of [wireTable] and the types below it, as
// encoding/json would. But encoding/json first prepares encoders for seven types with 44 fields,
// which takes longer than all the writing in a program that writes one plan.
type jsonWriter struct{ bytes []byte }

// open begins an object or a list, as a member unless name is "".
func (w *jsonWriter) open(name string, bracket byte) {
	w.next(name)
	w.bytes = append(w.bytes, bracket)
}

func (w *jsonWriter) close(bracket byte) { w.bytes = append(w.bytes, bracket) }

// next separates what follows from the element before, and names it.
func (w *jsonWriter) next(name string) {
	if n := len(w.bytes); n > 0 && w.bytes[n-1] != '{' && w.bytes[n-1] != '[' {
		w.bytes = append(w.bytes, ',')
	}
	if name != "" {
		w.quoted(name)
		w.bytes = append(w.bytes, ':')
	}
}

func (w *jsonWriter) text(name, value string) {
	w.next(name)
	w.quoted(value)
}

// optional leaves out an empty text.
func (w *jsonWriter) optional(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

// number leaves out 0.
func (w *jsonWriter) number(name string, value int64) {
	if value != 0 {
		w.next(name)
		w.bytes = strconv.AppendInt(w.bytes, value, 10)
	}
}

// quoted has encoding/json write what it would not copy unchanged.
func (w *jsonWriter) quoted(text string) {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, _ := json.Marshal(text) // of a string it cannot fail
			w.bytes = append(w.bytes, escaped...)
			return
		}
	}
	w.bytes = append(append(append(w.bytes, '"'), text...), '"')
}

// writeList leaves out an empty list.
func writeList[T any](w *jsonWriter, name string, all []T, write func(T)) {
	if len(all) == 0 {
		return
	}
	w.open(name, '[')
	for _, element := range all {
		w.open("", '{')
		write(element)
		w.close('}')
	}
	w.close(']')
}

func (w *jsonWriter) table(t Table) {
	w.open("table", '{')
	w.text("kind", t.Kind.String())
	writeList(w, "entries", t.Entries, w.entry)
	writeList(w, "chains", t.Chains, w.chain)
	w.close('}')
}

func (w *jsonWriter) entry(e Entry) {
	w.text("id", string(e.ID))
	w.text("hook", e.Hook.String())
	w.number("offset", int64(e.Offset))
	w.match(e.Match)
	w.text("chain", string(e.Chain))
	w.text("why", e.Why)
}

func (w *jsonWriter) chain(c Chain) {
	w.text("name", string(c.Name))
	writeList(w, "rules", c.Rules, w.rule)
}

func (w *jsonWriter) rule(r Rule) {
	w.text("id", string(r.ID))
	w.match(r.Match)
	w.action(encodeAction(r.Action))
	w.text("why", r.Why)
	writeList(w, "from", r.From, w.source)
}

func (w *jsonWriter) source(s Source) {
	w.text("kind", string(s.Kind))
	w.text("key", s.Key)
	w.text("value", s.Value)
}

func (w *jsonWriter) action(a wireAction) {
	w.open("action", '{')
	w.text("do", a.Do)
	w.number("port", int64(a.Port))
	if a.Addr.IsValid() {
		w.text("addr", a.Addr.String())
	}
	w.optional("mark", a.Mark)
	w.number("mask", int64(a.Mask))
	w.number("zone", int64(a.Zone))
	w.optional("text", a.Text)
	w.optional("chain", string(a.Chain))
	w.close('}')
}

// match leaves out a match without conditions.
func (w *jsonWriter) match(m Match) {
	before := len(w.bytes)
	w.open("match", '{')
	empty := len(w.bytes)
	w.conditions(encodeMatch(m))
	if len(w.bytes) == empty {
		w.bytes = w.bytes[:before]
		return
	}
	w.close('}')
}

func (w *jsonWriter) conditions(m wireMatch) {
	w.optional("family", m.Family)
	w.optional("in", m.In)
	w.optional("out", m.Out)
	w.optional("src", m.Src)
	w.optional("dst", m.Dst)
	w.optional("srcSet", m.SrcSet)
	w.optional("dstSet", m.DstSet)
	w.optional("protocol", m.Protocol)
	w.optional("sport", m.SrcPort)
	w.optional("dport", m.DstPort)
	w.optional("flags", m.Flags)
	w.optional("uid", m.UID)
	w.optional("gid", m.GID)
	w.optional("mark", m.Mark)
	w.optional("connmark", m.ConnMark)
	w.optional("state", m.State)
	w.optional("direction", m.Direction)
}
