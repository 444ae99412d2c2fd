// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"errors"
	"strings"
)

// lenient is a field that kinds of objects which are not known here may use for something else. It
// keeps the error of reading it for whoever needs the field.
type lenient[T any] struct {
	value T
	err   error
}

// UnmarshalJSON makes it a json.Unmarshaler.
func (l *lenient[T]) UnmarshalJSON(text []byte) error {
	l.err = json.Unmarshal(text, &l.value)
	return nil
}

// misfit says in words what stands where something else is wanted.
func misfit(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err.Error()
	}
	value, _, _ := strings.Cut(wrong.Value, " ")
	if name, known := map[string]string{"array": "list", "object": "map", "bool": "boolean"}[value]; known {
		value = name
	}
	if wrong.Field == "" {
		return "it is a " + value
	}
	return wrong.Field + " is a " + value
}
