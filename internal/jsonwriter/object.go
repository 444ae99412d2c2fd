// SPDX-License-Identifier: Apache-2.0

package jsonwriter

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// Object is a JSON object that is being written. The zero Object is empty.
type Object struct{ text []byte }

// Bytes is the object as it is now, until more is added.
func (o *Object) Bytes() []byte {
	if len(o.text) == 0 {
		return []byte("{}")
	}
	return append(o.text, '}')
}

func (o *Object) key(name string) {
	before := byte(',')
	if len(o.text) == 0 {
		before = '{'
	}
	o.text = append(appendText(append(o.text, before), name), ':')
}

// String adds a text.
func (o *Object) String(name, text string) {
	o.key(name)
	o.text = appendText(o.text, text)
}

// NonEmpty adds a text unless it is empty, as the option omitempty does.
func (o *Object) NonEmpty(name, text string) {
	if text != "" {
		o.String(name, text)
	}
}

// Uint adds a whole number.
func (o *Object) Uint(name string, n uint64) {
	o.key(name)
	o.text = strconv.AppendUint(o.text, n, 10)
}

// Float adds a number. One that JSON has no form for is 0.
func (o *Object) Float(name string, f float64) {
	text, err := json.Marshal(f)
	if err != nil {
		text = []byte("0")
	}
	o.Raw(name, text)
}

// Bool adds true or false.
func (o *Object) Bool(name string, value bool) {
	o.key(name)
	o.text = strconv.AppendBool(o.text, value)
}

// Time adds a time as RFC 3339 has it, with as many digits as it needs. Its year has four of them.
func (o *Object) Time(name string, t time.Time) { o.String(name, t.Format(time.RFC3339Nano)) }

// Raw adds a value that is JSON already, without blanks.
func (o *Object) Raw(name string, value []byte) {
	o.key(name)
	o.text = append(slices.Grow(o.text, len(value)+1), value...) // with room for the end
}

// Object adds an object.
func (o *Object) Object(name string, write func(*Object)) { o.Raw(name, Of(write)) }

// Of is an object of what write adds to it.
func Of(write func(*Object)) []byte {
	var o Object
	write(&o)
	return o.Bytes()
}

// NonEmptyList adds a list unless it is empty, as the option omitempty does. Its values are what element makes of them.
func NonEmptyList[T any](o *Object, name string, values []T, element func(T) []byte) {
	if len(values) > 0 {
		List(o, name, values, element)
	}
}

// List adds a list, whose values are what element makes of them.
func List[T any](o *Object, name string, values []T, element func(T) []byte) {
	o.key(name)
	o.text = append(o.text, '[')
	for i, value := range values {
		if i > 0 {
			o.text = append(o.text, ',')
		}
		o.text = append(o.text, element(value)...)
	}
	o.text = append(o.text, ']')
}

// Text is a text as JSON.
func Text(text string) []byte { return appendText(nil, text) }

// appendText leaves what has to be escaped to who knows how.
func appendText(to []byte, text string) []byte {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			escaped, _ := json.Marshal(text) // a string always has a form
			return append(to, escaped...)
		}
	}
	return append(append(append(to, '"'), text...), '"')
}
