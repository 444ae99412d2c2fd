// SPDX-License-Identifier: Apache-2.0

package podsource

import "fmt"

// node is a value of a document, with the line it starts in (0 in JSON, where lines say little).
type node struct {
	kind nodeKind
	line int
	// scalar is a scalar's text. Numbers and booleans are kept as they are written: who asks knows what should be there.
	scalar string
	// items are a sequence's values, or a mapping's, whose keys are in keys.
	items []*node
	keys  []string
}

type nodeKind uint8

const (
	null nodeKind = iota
	scalar
	sequence
	mapping
)

func (k nodeKind) String() string {
	return [...]string{"nothing", "a value", "a list", "a mapping"}[k]
}

// maxKeys bounds a mapping, as keys are looked up one by one.
const maxKeys = 256

// add appends an entry to a mapping.
func (n *node) add(key string, value *node) error {
	if len(n.keys) == maxKeys {
		return fmt.Errorf("line %d: more than %d keys in a mapping", value.line, maxKeys)
	}
	if n.get(key) != nil {
		return fmt.Errorf("line %d: %q is there twice", value.line, key)
	}
	n.keys, n.items = append(n.keys, key), append(n.items, value)
	return nil
}

// get is nil when n is no mapping, or has no such key.
func (n *node) get(key string) *node {
	for i, k := range n.keys {
		if k == key {
			return n.items[i]
		}
	}
	return nil
}

// text is the scalar under key; "" when it isn't there.
func (n *node) text(key string) (string, error) {
	value := n.get(key)
	switch {
	case value == nil || value.kind == null:
		return "", nil
	case value.kind != scalar:
		return "", fmt.Errorf("line %d: %s is %v, and should be a value", value.line, key, value.kind)
	default:
		return value.scalar, nil
	}
}

// field is a key and where its text goes.
type field struct {
	key string
	to  *string
}

func (n *node) texts(fields ...field) error {
	for _, f := range fields {
		text, err := n.text(f.key)
		if err != nil {
			return err
		}
		*f.to = text
	}
	return nil
}

func (n *node) boolean(key string) (bool, error) {
	text, err := n.text(key)
	if err != nil || text == "" || text == "false" {
		return false, err
	}
	if text != "true" {
		return false, fmt.Errorf("line %d: %s is neither true nor false", n.get(key).line, key)
	}
	return true, nil
}

// named looks in the list of a kubeconfig for the one entry with that name, and returns what it has under its other key.
func (n *node) named(list, name, key string) (*node, error) {
	entries := n.get(list)
	if entries == nil || entries.kind != sequence {
		return nil, fmt.Errorf("there is no list of %s", list)
	}
	var entry *node
	for _, candidate := range entries.items {
		switch found, err := candidate.text("name"); {
		case err != nil:
			return nil, err
		case found != name:
		case entry != nil:
			return nil, fmt.Errorf("line %d: %s has two entries with the name that is in use", candidate.line, list)
		default:
			entry = candidate
		}
	}
	if entry == nil {
		return nil, fmt.Errorf("line %d: %s has no entry with the name that is in use", entries.line, list)
	}
	if value := entry.get(key); value != nil && value.kind == mapping {
		return value, nil
	}
	return nil, fmt.Errorf("line %d: the entry of %s that is in use has no mapping %s", entry.line, list, key)
}
