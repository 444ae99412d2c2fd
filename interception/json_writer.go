// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"encoding/json"
	"strconv"
)

// jsonWriter writes a plan, and its tables in the form of [wireTable] and the types below it, as
// encoding/json would. But encoding/json first prepares encoders for seven types with 44 fields,
// which takes longer than all the writing in a program that writes one plan.
type jsonWriter struct {
	bytes []byte
	// errs are conditions that the form cannot express.
	errs []error
}

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
	w.match(place{kind: "entry", name: string(e.ID)}, e.Match)
	w.text("chain", string(e.Chain))
	w.text("why", e.Why)
}

func (w *jsonWriter) chain(c Chain) {
	w.text("name", string(c.Name))
	writeList(w, "rules", c.Rules, w.rule)
}

func (w *jsonWriter) rule(r Rule) {
	w.text("id", string(r.ID))
	w.match(place{kind: "rule", name: string(r.ID)}, r.Match)
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
	w.optional("direction", a.Way)
	w.optional("text", a.Text)
	w.optional("chain", string(a.Chain))
	w.close('}')
}

// match leaves out a match without conditions.
func (w *jsonWriter) match(at place, m Match) {
	before := len(w.bytes)
	w.open("match", '{')
	empty := len(w.bytes)
	w.conditions(at, encodeMatch(m))
	if len(w.bytes) == empty {
		w.bytes = w.bytes[:before]
		return
	}
	w.close('}')
}

// condition leaves out a condition that is not there. One with an empty set is an error: the plan
// is not valid, and what is written must not read as another plan.
func (w *jsonWriter) condition(at place, name string, text wireText) {
	if err := text.check(name); err != nil {
		w.errs = append(w.errs, &PlanError{At: at.String(), Err: err})
	}
	if text.present {
		w.text(name, text.text)
	}
}

func (w *jsonWriter) conditions(at place, m wireMatch) {
	w.condition(at, "family", m.Family)
	w.condition(at, "in", m.In)
	w.condition(at, "out", m.Out)
	w.condition(at, "src", m.Src)
	w.condition(at, "dst", m.Dst)
	w.condition(at, "srcSet", m.SrcSet)
	w.condition(at, "dstSet", m.DstSet)
	w.condition(at, "protocol", m.Protocol)
	w.condition(at, "sport", m.SrcPort)
	w.condition(at, "dport", m.DstPort)
	w.condition(at, "flags", m.Flags)
	w.condition(at, "uid", m.UID)
	w.condition(at, "gid", m.GID)
	w.condition(at, "mark", m.Mark)
	w.condition(at, "connmark", m.ConnMark)
	w.condition(at, "state", m.State)
	w.condition(at, "direction", m.Direction)
}
