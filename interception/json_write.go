// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"encoding/json"
	"net/netip"
	"strconv"
)

// jsonWriter writes the wire types as json.Marshal would, to the letter. It knows them beforehand, and doesn't have to find out: that costs a
// program which writes one plan in its life more than the writing.
type jsonWriter struct{ text []byte }

// usualJSON is enough for a sidecar's plan without long lists.
const usualJSON = 12 << 10

// sizeAsJSON is about how many bytes the plan has as JSON: with the lists that may be long.
func (p *Plan) sizeAsJSON() int {
	size := usualJSON
	sources := func(from []Source) {
		for _, s := range from {
			size += len(s.Value)
		}
	}
	for _, object := range p.Objects {
		switch o := object.(type) {
		case Set:
			size += o.Members.Len() * usualPrefix
			sources(o.From)
		case Table:
			for _, chain := range o.Chains {
				for _, r := range chain.Rules {
					sources(r.From)
				}
			}
		}
	}
	return size
}

// open begins an object or a list.
func (w *jsonWriter) open(bracket byte) { w.text = append(w.text, bracket) }

func (w *jsonWriter) close(bracket byte) { w.text = append(w.text, bracket) }

// next separates what follows from what stands before it.
func (w *jsonWriter) next() {
	if last := w.text[len(w.text)-1]; last != '{' && last != '[' {
		w.text = append(w.text, ',')
	}
}

func (w *jsonWriter) key(name string) {
	w.next()
	w.text = append(append(append(w.text, '"'), name...), `":`...)
}

// word writes a text. What has to be escaped in it is left to who knows how.
func (w *jsonWriter) word(text string) {
	for i := range len(text) {
		c := text[i]
		if c > '>' && c <= '~' && c != '\\' || c >= '\'' && c < '<' {
			continue // the most there is
		}
		switch {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			escaped, _ := json.Marshal(text) // a string always has a form
			w.text = append(w.text, escaped...)
			return
		}
	}
	w.text = append(append(append(w.text, '"'), text...), '"')
}

func (w *jsonWriter) string(name, text string) {
	w.key(name)
	w.word(text)
}

// strings writes those pairs of names and texts whose text isn't empty.
func (w *jsonWriter) strings(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			w.string(pairs[i], pairs[i+1])
		}
	}
}

func (w *jsonWriter) number(name string, n int64) {
	w.key(name)
	w.text = strconv.AppendInt(w.text, n, 10)
}

// positive writes a number unless it is 0.
func (w *jsonWriter) positive(name string, n uint32) {
	if n != 0 {
		w.number(name, int64(n))
	}
}

// reason ends an object: why it is there, and where it comes from.
func (w *jsonWriter) reason(why string, from []Source) {
	w.string("why", why)
	listOf(w, "from", from, func(s Source) {
		w.open('{')
		w.string("kind", string(s.Kind))
		w.string("key", s.Key)
		w.string("value", s.Value)
		w.close('}')
	})
	w.close('}')
}

// listOf writes a list unless it is empty.
func listOf[T any](w *jsonWriter, name string, values []T, write func(T)) {
	if len(values) == 0 {
		return
	}
	w.key(name)
	w.open('[')
	for _, value := range values {
		w.next()
		write(value)
	}
	w.close(']')
}

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}
