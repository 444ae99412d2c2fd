// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// span is the part of a document from one offset up to, and not including, another.
type span struct{ from, to int }

func (s span) of(doc []byte) []byte { return doc[s.from:s.to] }

// blanks are what JSON allows between tokens.
const blanks = " \t\r\n"

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// object returns the place of the object that a document is. It accepts what encoding/json accepts,
// within [MaxSize] and [MaxDepth], because runtimes use encoding/json: where this package and a
// runtime differ on a document, that must be a decision.
func object(doc []byte) (span, error) {
	if len(doc) > MaxSize {
		return span{}, failAt(doc, MaxSize, "larger than %d bytes: this is not a network configuration", MaxSize)
	}
	if bytes.HasPrefix(doc, []byte("\ufeff")) {
		return span{}, failAt(doc, 0, "the document starts with a byte order mark, which no runtime accepts: save it without")
	}
	if err := checkDepth(doc); err != nil {
		return span{}, err
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(doc, new(json.RawMessage)); errors.As(err, &syntax) {
		return span{}, syntaxError(doc, max(0, int(syntax.Offset)-1), err)
	} else if err != nil {
		return span{}, syntaxError(doc, 0, err)
	}
	top := span{len(doc) - len(bytes.TrimLeft(doc, blanks)), len(bytes.TrimRight(doc, blanks))}
	if doc[top.from] != '{' {
		return span{}, failAt(doc, top.from, "the document is not an object")
	}
	return top, nil
}

// checkDepth refuses a document that is nested too deeply. It accepts one that is not valid.
func checkDepth(doc []byte) error {
	depth, quoted := 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		if depth > MaxDepth {
			return failAt(doc, i, "nested deeper than %d levels: simplify the configuration", MaxDepth)
		}
	}
	return nil
}

func failAt(doc []byte, offset int, format string, args ...any) error {
	return syntaxError(doc, offset, fmt.Errorf(format, args...))
}

// walk calls visit for the members of the object, or the elements of the array, at a place in a
// valid document. The key of an element is empty.
func walk(doc []byte, container span, visit func(key, value span) error) error {
	decoder := json.NewDecoder(bytes.NewReader(container.of(doc)))
	at := func() int { return container.from + int(decoder.InputOffset()) }
	_, err := decoder.Token() // the opening bracket
	for err == nil && decoder.More() {
		var key, value span
		if doc[container.from] == '{' {
			between := doc[at():]
			key.from = len(doc) - len(bytes.TrimLeft(between, blanks+","))
			_, err = decoder.Token()
			key.to = at()
		}
		var raw json.RawMessage
		err = errors.Join(err, decoder.Decode(&raw))
		value.to = at()
		value.from = value.to - len(raw)
		if err == nil {
			err = visit(key, value)
		}
	}
	return err
}

// text decodes a valid string.
func text(token []byte) string {
	var s string
	_ = json.Unmarshal(token, &s) // cannot fail: the token is valid
	return s
}

// nonEmpty decodes a value that must be a non-empty string.
func nonEmpty(token []byte) (string, error) {
	if token[0] != '"' {
		return "", errors.New("is not a string")
	}
	s := text(token)
	if s == "" {
		return "", errors.New("is empty")
	}
	return s, nil
}
