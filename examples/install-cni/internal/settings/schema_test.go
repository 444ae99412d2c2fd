// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestSchemaTakesWhatTheProgramTakes checks values with the JSON schema as Helm would, and with the
// program.
func TestSchemaTakesWhatTheProgramTakes(t *testing.T) {
	t.Parallel()
	schema := readSchema(t)
	for _, s := range All() {
		if s.Inert {
			continue
		}
		property := schema.Properties[s.Key()]
		for _, value := range append(goodValues(s), badValues()...) {
			problem, bySchema := s.Check(chartText(value)), property.judge(value)
			if problem == nil && bySchema != "" && slices.ContainsFunc(goodValues(s), func(good any) bool { return fmt.Sprint(good) == fmt.Sprint(value) }) {
				t.Errorf("%s: the schema refuses %#v (%s), and the program takes it", s.Name, value, bySchema)
			}
			if problem != nil && bySchema == "" && !beyondSchema(s, value) {
				t.Errorf("%s: the schema takes %#v, and the program says: %v", s.Name, value, problem)
			}
		}
	}
}

// goodValues returns values in a chart that the setting accepts: its default, and one more.
func goodValues(s Setting) []any {
	more := map[string]any{
		"bool": s.Default == "true", "list": []any{"kube-system", "a.b"}, "port": 6443.0, "path": "/x", "mode": "0640", "duration": "1m30s",
		"address": "127.0.0.1:80", "levels": "default:warn,cni-plugin:debug", "name": "x",
		"number": 126.0, "label": "yes", "rules": "owners=Job do=delete; do=label", "key": "example.com/name", "paths": []any{"/run/netns"},
	}
	good := []any{}
	if value, ok := more[s.kind]; ok && (s.kind != "name" || s.Check("x") == nil) {
		good = append(good, value)
	}
	good = append(good, s.shape.Enum...)
	switch s.kind {
	case "bool", "list", "paths":
	case "port", "number", "label": // their default is a number or a boolean, too
	default:
		good = append(good, s.Default)
	}
	return good
}

// badValues returns values that few or no settings accept.
func badValues() []any {
	return []any{
		"", "x", "X Y", "/", "../x", "a/b", "10-a.conflist", ".conf", "0999", "600", "-1s", "20", ":0", "80:", 0.0, 70000.0, 1.5, true,
		[]any{},
		[]any{"A"},
		[]any{"a b"},
		[]any{1.0},
		[]any{""},
		strings.Repeat("a", 300),
		map[string]any{},
		nil,
	}
}

// beyondSchema reports whether only the program can check a value.
func beyondSchema(s Setting, value any) bool {
	text, isText := value.(string)
	return isText && (s.kind == "levels" || s.kind == "rules" || s.kind == "selectors" || s.kind == "selector" || s.kind == "mode" || s.kind == "address" || (s.kind == "path" && text == "/"))
}

// chartText returns a value of a chart as the setting's text.
func chartText(value any) string {
	switch value := value.(type) {
	case []any:
		words := make([]string, len(value))
		for i, item := range value {
			words[i] = chartText(item)
		}
		return strings.Join(words, ",")
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	default:
		return fmt.Sprint(value)
	}
}

func TestSchemaIsWhole(t *testing.T) {
	t.Parallel()
	schema := readSchema(t)
	if schema.Schema != "http://json-schema.org/draft-07/schema#" || schema.Type != "object" || schema.AdditionalProperties {
		t.Errorf("head of the schema: %+v", schema)
	}
	keys := map[string]bool{}
	for _, s := range All() {
		if s.Inert {
			continue
		}
		if keys[s.Key()] {
			t.Errorf("two settings have the key %s", s.Key())
		}
		keys[s.Key()] = true
		if property, ok := schema.Properties[s.Key()]; !ok || property.Description != s.Usage || property.Type == "" {
			t.Errorf("%s: property %+v", s.Name, property)
		}
	}
	if len(keys) != len(schema.Properties) {
		t.Errorf("properties %v, settings %v", slices.Sorted(maps.Keys(schema.Properties)), slices.Sorted(maps.Keys(keys)))
	}
}

// document is a JSON schema with the keywords that are used; any other is an error.
type document struct {
	Schema               string             `json:"$schema"`
	Title                string             `json:"title"`
	Type                 string             `json:"type"`
	Properties           map[string]keyword `json:"properties"`
	AdditionalProperties bool               `json:"additionalProperties"`
}

type keyword struct {
	Description string   `json:"description"`
	Type        string   `json:"type"`
	Enum        []any    `json:"enum"`
	Pattern     string   `json:"pattern"`
	MaxLength   int      `json:"maxLength"`
	Minimum     *float64 `json:"minimum"`
	Maximum     *float64 `json:"maximum"`
	Items       *keyword `json:"items"`
}

func readSchema(t *testing.T) document {
	t.Helper()
	text, err := jsonSchema()
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	var schema document
	if err := decoder.Decode(&schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// judge returns the error in a value, according to draft 7.
func (k keyword) judge(value any) string {
	if len(k.Enum) > 0 && !slices.ContainsFunc(k.Enum, func(one any) bool { return fmt.Sprint(one) == fmt.Sprint(value) }) {
		return "not in enum"
	}
	switch value := value.(type) {
	case string:
		return k.judgeText(value)
	case bool:
		return k.typed("boolean")
	case float64:
		return k.judgeNumber(value)
	case []any:
		for _, item := range value {
			if k.Items != nil && k.Items.judge(item) != "" {
				return "items: " + k.Items.judge(item)
			}
		}
		return k.typed("array")
	default:
		return "neither text nor number"
	}
}

func (k keyword) judgeText(value string) string {
	switch {
	case k.typed("string") != "":
		return k.typed("string")
	case k.Pattern != "" && !regexp.MustCompile(k.Pattern).MatchString(value):
		return "pattern " + k.Pattern
	case k.MaxLength > 0 && utf8.RuneCountInString(value) > k.MaxLength:
		return "too long"
	}
	return ""
}

func (k keyword) judgeNumber(value float64) string {
	switch {
	case value != float64(int(value)):
		return k.typed("number")
	case k.Minimum != nil && value < *k.Minimum, k.Maximum != nil && value > *k.Maximum:
		return "out of bounds"
	}
	return k.typed("integer")
}

func (k keyword) typed(as string) string {
	if k.Type != "" && k.Type != as {
		return "type is " + k.Type
	}
	return ""
}

// property is a setting in the schema.
type property struct {
	Description string `json:"description"`
	shape
}

// jsonSchema returns the JSON schema (draft 7, as Helm reads it) of an object with a value for each
// setting by its key, for the values.schema.json of a chart. Lists are arrays there, and numbers
// and booleans are not text. Settings without effect are omitted.
func jsonSchema() ([]byte, error) {
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
