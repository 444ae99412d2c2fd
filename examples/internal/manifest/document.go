// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxDocuments is the most documents that a text may have.
const maxDocuments = 1000

// document is a YAML document of a text.
type document struct {
	// line is where it begins, counted from 1.
	line int
	// text is the document behind as many empty lines as the text has before it, so that a parser
	// counts the lines as a reader of the text does.
	text []byte
}

// split finds the documents in which something is written. A document ends at a line that begins
// with "---" or "..." and goes no further without a blank (YAML 1.2.2, section 9.1).
func split(text []byte) ([]document, error) {
	var documents []document
	var current bytes.Buffer
	number, begins, written := 0, 0, false
	end := func() error {
		if written {
			if len(documents) == maxDocuments {
				return fmt.Errorf("line %d: the text has more than %d documents: split it", begins, maxDocuments)
			}
			padding := bytes.Repeat([]byte("\n"), begins-1)
			documents = append(documents, document{line: begins, text: append(padding, current.Bytes()...)})
		}
		current.Reset()
		begins, written = 0, false
		return nil
	}
	for line := range bytes.Lines(text) {
		number++
		rest, marker := cutMarker(line)
		if marker {
			if err := end(); err != nil {
				return nil, err
			}
			line = rest
		}
		if begins == 0 {
			begins = number
		}
		content := bytes.TrimSpace(line)
		written = written || len(content) > 0 && content[0] != '#' && content[0] != '%'
		current.Write(line)
	}
	return documents, end()
}

// cutMarker takes the marker of a document's begin or end from a line, and returns what stands
// behind it, which belongs to the next document.
func cutMarker(line []byte) (rest []byte, found bool) {
	for _, marker := range []string{"---", "..."} {
		rest, found := bytes.CutPrefix(line, []byte(marker))
		if found && (len(bytes.TrimRight(rest, "\r\n")) == 0 || rest[0] == ' ' || rest[0] == '\t') {
			return append([]byte("   "), rest...), true
		}
	}
	return line, false
}

// checkStrings refuses values that YAML takes for a number or a boolean where Kubernetes wants a
// string: an annotation "9090" without quotes, say, which no API server accepts either.
func (d document) checkStrings() error {
	decoder := yaml.NewDecoder(bytes.NewReader(d.text))
	var root yaml.Node
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return fmt.Errorf("neither YAML nor JSON: %w", err)
	}
	var errs []error
	checkNode(&root, "", &errs)
	return errors.Join(errs...)
}

// checkNode looks for annotations, labels and variables below a node. The parent is the key that
// the node is the value of.
func checkNode(node *yaml.Node, parent string, errs *[]error) {
	if node.Kind != yaml.MappingNode {
		for _, child := range node.Content {
			checkNode(child, parent, errs)
		}
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case parent == "metadata" && (key.Value == "annotations" || key.Value == "labels"):
			for j := 0; value.Kind == yaml.MappingNode && j+1 < len(value.Content); j += 2 {
				checkString(key.Value, value.Content[j].Value, value.Content[j+1], errs)
			}
		case parent == "env" && key.Value == "value":
			checkString("env", "value", value, errs)
		default:
			checkNode(value, key.Value, errs)
		}
	}
}

func checkString(place, key string, value *yaml.Node, errs *[]error) {
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	if value.Kind != yaml.ScalarNode || value.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return
	}
	kind := ""
	switch tag := value.ShortTag(); {
	case tag == "!!int" || tag == "!!float":
		kind = "a number"
	case tag == "!!bool" || tag == "!!str" && value.Style&yaml.TaggedStyle == 0 && isOldBoolean(value.Value):
		kind = "a boolean"
	default:
		return
	}
	*errs = append(*errs, fmt.Errorf("line %d: %s: %s: %s is %s, and Kubernetes wants a string: quote it: %q",
		value.Line, place, key, value.Value, kind, value.Value))
}

// isOldBoolean says whether YAML 1.1, which Kubernetes reads, takes a word for a boolean.
func isOldBoolean(word string) bool {
	return slices.Contains([]string{"y", "n", "yes", "no", "on", "off"}, strings.ToLower(word))
}
