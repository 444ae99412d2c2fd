// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// checkStrings refuses values that YAML reads as a number or a boolean where Kubernetes needs a
// string: for example an unquoted annotation 9090, which no API server accepts either.
func (d document) checkStrings() error {
	root, err := d.parse()
	if err != nil || root == nil {
		return err
	}
	c := stringChecker{before: d.line - 1, seen: map[visit]bool{}}
	c.check(root, "")
	return errors.Join(c.errs...)
}

// stringChecker looks for annotations, labels, names and variables in a document.
type stringChecker struct {
	// before is the number of lines of the text before the document.
	before int
	// seen are the maps and lists that were checked: an anchor may be used many times, also in
	// itself.
	seen map[visit]bool
	errs []error
}

// visit is a node with the role that it was checked in.
type visit struct {
	node *yaml.Node
	role role
}

// role is what a map or list is for, named like its key; empty for those without a string to check.
type role string

// check checks strings below a node in a role.
func (c *stringChecker) check(node *yaml.Node, as role) {
	node = resolve(node)
	at := visit{node, as}
	if node.Kind == yaml.ScalarNode || c.seen[at] {
		return
	}
	c.seen[at] = true
	if node.Kind != yaml.MappingNode {
		for _, child := range node.Content {
			c.check(child, as)
		}
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		c.entry(as, node.Content[i], node.Content[i+1])
	}
}

// entry checks a key and its value in a map.
func (c *stringChecker) entry(as role, key, value *yaml.Node) {
	switch name := key.Value; {
	case key.ShortTag() == "!!merge": // what is merged has the map's own role
		c.check(value, as)
	case as == "annotations" || as == "labels", as == "env" && name == "value",
		as == "metadata" && slices.Contains([]string{"name", "namespace", "generateName"}, name):
		c.wantString(as, name, value)
	case as == "metadata" && (name == "annotations" || name == "labels"),
		name == "metadata",
		name == "env" && resolve(value).Kind == yaml.SequenceNode:
		c.check(value, role(name))
	default:
		c.check(value, "")
	}
}

func (c *stringChecker) wantString(place role, key string, value *yaml.Node) {
	value = resolve(value)
	complain := func(what, remedy string) {
		c.errs = append(c.errs, fmt.Errorf("line %d: %s: %s: %s, and Kubernetes wants a string: %s", c.before+value.Line, place, key, what, remedy))
	}
	switch quote := fmt.Sprintf("quote it: %q", value.Value); {
	case value.Kind == yaml.MappingNode:
		complain("it is a map", "write one in its place")
	case value.Kind == yaml.SequenceNode:
		complain("it is a list", "write one in its place")
	case value.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0:
	case value.ShortTag() == "!!int" || value.ShortTag() == "!!float":
		complain(value.Value+" is a number", quote)
	case value.ShortTag() == "!!bool", value.ShortTag() == "!!str" && value.Style&yaml.TaggedStyle == 0 && isOldBoolean(value.Value):
		complain(value.Value+" is a boolean", quote)
	}
}

// resolve returns the node that an alias refers to; other nodes are returned as they are.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// isOldBoolean reports whether YAML 1.1, which Kubernetes reads, takes a word for a boolean.
func isOldBoolean(word string) bool {
	return slices.Contains([]string{"y", "Y", "n", "N", "yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off", "OFF"}, word)
}
