// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// maxDepth bounds the nesting of values; a kubeconfig has 4 levels.
const maxDepth = 16

// parseDocument reads JSON if the first character is '{', or else the part of YAML
// (https://yaml.org/spec/1.2.2/) that programs write kubeconfigs in: mappings and lists in block
// style, plain and quoted values on one line, empty {} and [], comments, and "---" at the start.
// Other YAML (anchors, tags, block texts, flow collections, several documents) is refused.
func parseDocument(data []byte) (*node, error) {
	for i, line := range bytes.Split(data, []byte("\n")) {
		if !utf8.Valid(line) || bytes.ContainsFunc(bytes.TrimSuffix(line, []byte("\r")), isControl) {
			return nil, fmt.Errorf("line %d: it has characters that are not text", i+1)
		}
	}
	if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return parseJSON(data)
	}
	return parseBlocks(string(data))
}

func isControl(r rune) bool { return unicode.IsControl(r) && r != '\t' }

func parseJSON(data []byte) (*node, error) {
	p := jsonParser{json.NewDecoder(bytes.NewReader(data))}
	p.decoder.UseNumber()
	root, err := p.value(0)
	if err == nil {
		if _, err = p.decoder.Token(); errors.Is(err, io.EOF) {
			return root, nil
		}
		err = errors.New("there is more after the end")
	}
	line := 1 + bytes.Count(data[:min(p.decoder.InputOffset(), int64(len(data)))], []byte("\n"))
	return nil, fmt.Errorf("line %d: not understood as JSON: %w", line, err)
}

type jsonParser struct{ decoder *json.Decoder }

func (p jsonParser) value(depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errors.New("too many levels")
	}
	token, err := p.decoder.Token()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it ends too early")
	}
	if _, is := errors.AsType[*json.SyntaxError](err); is {
		return nil, errors.New("syntax error") // the error's own text quotes what may be a secret
	} else if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case nil:
		return &node{}, nil
	case json.Delim:
		if t == '{' {
			return p.collection(&node{kind: mappingNode}, depth)
		}
		return p.collection(&node{kind: listNode}, depth)
	default:
		return &node{kind: scalarNode, text: fmt.Sprint(t)}, nil
	}
}

// collection reads values up to the closing delimiter.
func (p jsonParser) collection(n *node, depth int) (*node, error) {
	for p.decoder.More() {
		var key string
		if n.kind == mappingNode {
			token, err := p.decoder.Token()
			if err != nil {
				return nil, errors.New("syntax error")
			}
			key, _ = token.(string)
		}
		value, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if n.kind == listNode {
			n.items = append(n.items, value)
		} else if err := n.add(key, value); err != nil {
			return nil, err
		}
	}
	if _, err := p.decoder.Token(); err != nil {
		return nil, errors.New("syntax error")
	}
	return n, nil
}
