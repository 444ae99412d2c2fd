// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import "fmt"

// node is a value of a document, and the line where it starts: 0 in JSON, where lines say little.
type node struct {
	kind nodeKind
	line int
	// text is a scalar as it is written, also a number or boolean.
	text string
	// items are a list's values, or a mapping's, whose keys are in keys.
	items []*node
	keys  []string
}

type nodeKind uint8

const (
	nullNode nodeKind = iota
	scalarNode
	listNode
	mappingNode
)

func (k nodeKind) String() string {
	return [...]string{"nothing", "a value", "a list", "a mapping"}[k]
}

// maxKeys bounds a mapping, because keys are looked up one by one.
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

// get returns nil if the node is not a mapping, or lacks the key.
func (n *node) get(key string) *node {
	for i, k := range n.keys {
		if k == key {
			return n.items[i]
		}
	}
	return nil
}

// field is a key, and where to store its text.
type field struct {
	key string
	to  *string
}

// texts stores the scalars of several keys; "" for a missing key.
func (n *node) texts(fields ...field) error {
	for _, f := range fields {
		value := n.get(f.key)
		if value != nil && value.kind != nullNode && value.kind != scalarNode {
			return fmt.Errorf("line %d: %s is %v, and should be a value", value.line, f.key, value.kind)
		}
		if value != nil {
			*f.to = value.text
		}
	}
	return nil
}

func (n *node) boolean(key string) (bool, error) {
	var text string
	err := n.texts(field{key, &text})
	if err != nil || text == "" || text == "false" {
		return false, err
	}
	if text != "true" {
		return false, fmt.Errorf("line %d: %s is neither true nor false", n.get(key).line, key)
	}
	return true, nil
}

// named finds the only entry of that name in a list of the kubeconfig, and returns the mapping that
// the entry has under another key.
func (n *node) named(list, name, key string) (*node, error) {
	entries := n.get(list)
	if entries == nil || entries.kind != listNode {
		return nil, fmt.Errorf("there is no list of %s", list)
	}
	var entry *node
	for _, candidate := range entries.items {
		var found string
		switch err := candidate.texts(field{"name", &found}); {
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
	if value := entry.get(key); value != nil && value.kind == mappingNode {
		return value, nil
	}
	return nil, fmt.Errorf("line %d: the entry of %s that is in use has no mapping %s", entry.line, list, key)
}
