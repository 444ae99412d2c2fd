// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Plugin is a plugin's entry in a list.
type Plugin struct {
	// Type is the plugin's type, its executable's file name. It identifies its entries.
	Type string
	// Body is the JSON object of the entry in "plugins". Its "type" must equal Type. Insert writes
	// its tokens unchanged and adapts the blanks between them to the document.
	Body json.RawMessage
}

// validate refuses an invalid entry, with [ErrPlugin].
func (p Plugin) validate() error {
	top, err := object(p.Body)
	if err != nil {
		return fmt.Errorf("%w: Body: %w", ErrPlugin, err)
	}
	e, err := readEntry(p.Body, top)
	if err != nil {
		return fmt.Errorf("%w: Body: %w", ErrPlugin, err)
	}
	if e.typ != p.Type {
		return fmt.Errorf("%w: Body has the type %q and Type is %q: make them equal", ErrPlugin, e.typ, p.Type)
	}
	if p.Type == "." || p.Type == ".." || strings.Contains(p.Type, "/") {
		return fmt.Errorf("%w: Type %q is a path: write the file name of the executable alone", ErrPlugin, p.Type)
	}
	return nil
}

// equal reports whether two valid objects have equal content; blanks, escapes and the order of keys
// do not count. An agent that rewrites the whole file with sorted keys thus has not changed our
// entry, and the two do not keep overwriting each other.
func equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// decode keeps numbers as they are written.
func decode(object []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	var m map[string]any
	err := d.Decode(&m)
	return m, err
}
