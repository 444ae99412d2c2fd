// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"slices"
	"strings"
)

const (
	// MaxSize is the maximum size of a document in bytes, as input and as output: 1 MiB. Real ones
	// have a few KiB.
	MaxSize = 1 << 20
	// MaxDepth is the maximum nesting of objects and arrays. Real documents need fewer than ten.
	MaxDepth = 128
)

// document is a network configuration with the positions of the parts that this package needs.
type document struct {
	bytes  []byte
	single bool // a single plugin's configuration; the whole object is its one entry
	top    span // the top-level object
	// keys are the members of the top-level object that this package needs, by name.
	keys    keys
	entries []entry
}

type entry struct {
	span
	typ    string
	spaced bool // there is a blank after the first colon
}

// parse reads a document, and refuses what the documentation of [Insert] lists.
func parse(doc []byte) (*document, error) {
	top, err := object(doc)
	if err != nil {
		return nil, err
	}
	d := &document{bytes: doc, top: top, keys: keys{}}
	if err := walk(doc, top, func(key, value span) error {
		return d.keys.note(doc, key, value, "cniVersion", "name", "plugins", "type")
	}); err != nil {
		return nil, err
	}

	plugins, isList := d.keys["plugins"]
	typ, isSingle := d.keys["type"]
	switch {
	case isList && isSingle:
		return nil, failAt(doc, typ.key.from,
			`the document has "plugins" and "type": it is a list for one reader and a single configuration for another: remove one of them`)
	case isList:
		return d, d.list(plugins.value)
	case isSingle:
		d.single = true
		e, err := readEntry(doc, top)
		d.entries = []entry{e}
		return d, err
	}
	return nil, syntaxError(doc, top.from, ErrNoPlugins)
}

func (d *document) list(plugins span) error {
	if d.bytes[plugins.from] != '[' {
		return failAt(d.bytes, plugins.from, `"plugins" is not an array`)
	}
	return walk(d.bytes, plugins, func(_, element span) error {
		e, err := readEntry(d.bytes, element)
		d.entries = append(d.entries, e)
		return err
	})
}

func readEntry(doc []byte, at span) (entry, error) {
	e := entry{span: at}
	if doc[at.from] != '{' {
		return e, failAt(doc, at.from, "a plugin's entry is not an object")
	}
	found, first := keys{}, true
	if err := walk(doc, at, func(key, value span) error {
		if first {
			e.spaced, first = isBlank(doc[value.from-1]), false
		}
		return found.note(doc, key, value, "type")
	}); err != nil {
		return e, err
	}
	typ, ok := found["type"]
	if !ok {
		return e, failAt(doc, at.from, `a plugin's entry has no "type": add the name of its executable`)
	}
	var err error
	if e.typ, err = nonEmpty(typ.value.of(doc)); err != nil {
		return e, failAt(doc, typ.value.from, `the "type" of a plugin's entry %w: write the name of its executable`, err)
	}
	return e, nil
}

// of returns the indexes of a plugin's entries.
func (d *document) of(typ string) []int {
	var places []int
	for i, e := range d.entries {
		if e.typ == typ {
			places = append(places, i)
		}
	}
	return places
}

// keys are the members of an object that this package needs, by name.
type keys map[string]member

type member struct{ key, value span }

// note records a member if its key is one of the names. It refuses a second member of that name and
// a key that differs from a name only in case, because readers differ in which of them they take.
func (k keys) note(doc []byte, key, value span, names ...string) error {
	name := text(key.of(doc))
	if !slices.Contains(names, name) {
		for _, n := range names {
			if strings.EqualFold(n, name) {
				return failAt(doc, key.from, "the key %q differs from %q in case only, and runtimes disagree on its meaning: correct it", name, n)
			}
		}
		return nil
	}
	if _, twice := k[name]; twice {
		return failAt(doc, key.from, "the key %q appears twice: remove one", name)
	}
	k[name] = member{key, value}
	return nil
}
