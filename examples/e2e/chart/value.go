// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// Value is a value of the chart, as its values.yaml describes it.
type Value struct {
	// Path is the value's name, prefixed by those of its objects: "uninstall.hook".
	Path string
	// Default is the value's default in one line of JSON.
	Default string
	// Meaning is the comment above it.
	Meaning string
	// Heading is the title above it, shared with its neighbours.
	Heading string
}

// ReadValues reads a values.yaml with a comment above each value. Titles are comments that begin
// with "## ". An object without a comment holds further values.
func ReadValues(text string) ([]Value, error) {
	r := valueReader{lines: strings.Split(text, "\n")}
	for i, line := range r.lines {
		words := strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(words, "# ## "); ok {
			r.heading, r.comment = title, nil
			continue
		}
		if comment, ok := strings.CutPrefix(words, "#"); ok {
			r.comment = append(r.comment, strings.TrimSpace(comment))
			continue
		}
		if err := r.read(i, line, words); err != nil {
			return nil, err
		}
		r.comment = nil
	}
	return r.values, nil
}

// valueReader is the state of reading a values.yaml.
type valueReader struct {
	lines           []string
	values          []Value
	heading, parent string
	comment         []string
}

// read handles a line that is not a comment.
func (r *valueReader) read(i int, line, words string) error {
	name, rest, _ := strings.Cut(words, ":")
	indent := indentation(line)
	switch {
	case words == "" || indent > 0 && r.parent == "":
		return nil
	case len(r.comment) == 0 && indent == 0 && rest == "":
		r.parent = name + "."
		return nil
	case len(r.comment) == 0:
		return fmt.Errorf("line %d: no comment says what %q is", i+1, words)
	case indent == 0:
		r.parent = ""
	}
	value, err := defaultOf(r.lines[i:], indent)
	if err != nil {
		return fmt.Errorf("value %s: %w", name, err)
	}
	r.values = append(r.values, Value{r.parent + name, value, strings.Join(r.comment, " "), r.heading})
	return nil
}

func indentation(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// defaultOf returns the value at the first line, with what is indented below it.
func defaultOf(lines []string, indent int) (string, error) {
	end := 1
	for end < len(lines) && indentation(lines[end]) > indent {
		end++
	}
	var one map[string]any
	if err := yaml.Unmarshal([]byte(strings.Join(lines[:end], "\n")), &one); err != nil {
		return "", err
	}
	for _, value := range one {
		text, err := json.Marshal(value)
		return string(text), err
	}
	return "", nil
}
