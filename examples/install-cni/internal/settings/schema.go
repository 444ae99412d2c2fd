// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A shape is the JSON schema of one value. Its zero value is that of anything.
type shape struct {
	Type      string `json:"type,omitempty"`
	Enum      []any  `json:"enum,omitempty"`
	Pattern   string `json:"pattern,omitempty"`
	MaxLength int    `json:"maxLength,omitempty"`
	Minimum   *int   `json:"minimum,omitempty"`
	Maximum   *int   `json:"maximum,omitempty"`
	Items     *shape `json:"items,omitempty"`
}

// Key is the setting's name in the values of a chart.
func (s Setting) Key() string {
	words := strings.FieldsFunc(s.Name, func(r rune) bool { return r == '-' || r == '_' })
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}

// property is a setting in the schema.
type property struct {
	Description string `json:"description"`
	shape
}

// JSONSchema is the JSON schema (draft 7, as Helm reads it) of an object that has a value for each setting by its key, for the
// values.schema.json of a chart. Lists are arrays there, and numbers and booleans are no text. Settings without effect are not in it.
func JSONSchema() ([]byte, error) {
	properties := map[string]property{}
	for _, s := range All() {
		if !s.Inert {
			properties[s.Key()] = property{s.Usage, s.shape}
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(map[string]any{
		"$schema":              "http://json-schema.org/draft-07/schema#",
		"title":                "settings of install-cni",
		"type":                 "object",
		"properties":           properties,
		"additionalProperties": false,
	})
	return out.Bytes(), err
}
