// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"errors"
	"fmt"
)

// lift makes a list of a single configuration, in its style; typ is the plugin that is about to be inserted.
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
		return st.newline + st.base + string(bytes.Repeat([]byte(st.unit), level))
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

// head gives the members of a single configuration that a list has too.
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

// errNoName is why a single configuration has no list.
var errNoName = errors.New(`the single configuration names no network, and no runtime runs a list without: add a "name"`)
