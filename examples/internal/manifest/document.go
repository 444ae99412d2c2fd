// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
	kubernetes "sigs.k8s.io/yaml"
)

// maxDocuments is the maximum number of documents in a text.
const maxDocuments = 1000

// document is one YAML document of a text.
type document struct {
	// line is where it begins, counted from 1.
	line int
	text []byte
}

// inPlace returns the document, preceded by as many empty lines as the text has lines before it: a
// parser then reports lines as the reader counts them. It is called only after an error, since a
// text may have many documents and lines.
func (d document) inPlace() []byte {
	return append(bytes.Repeat([]byte("\n"), d.line-1), d.text...)
}

// parse returns the document's nodes; nil for an empty document.
func (d document) parse() (*yaml.Node, error) {
	root, err := parseYAML(d.text)
	if err != nil {
		_, err = parseYAML(d.inPlace())
		return nil, fmt.Errorf("neither YAML nor JSON: %w", err)
	}
	return root, nil
}

// parseYAML returns the nodes of a text that must be a single document.
func parseYAML(text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root, more yaml.Node
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	switch err := decoder.Decode(&more); {
	case errors.Is(err, io.EOF):
		return &root, nil
	case err != nil:
		return nil, fmt.Errorf("%w: is a line of --- missing between two documents?", err)
	default:
		return nil, fmt.Errorf("yaml: line %d: a second document, without --- before it", more.Line)
	}
}

// json returns the document in JSON, read as Kubernetes reads YAML.
func (d document) json() ([]byte, error) {
	text, err := kubernetes.YAMLToJSONStrict(d.text)
	if err != nil {
		_, err = kubernetes.YAMLToJSONStrict(d.inPlace())
		return nil, fmt.Errorf("unusable YAML: %w", err)
	}
	return text, nil
}

// values returns the JSON objects of the document, as kubectl prints them one after another; any
// other document is returned as it is. There are at most maxDocuments+1.
func (d document) values() []document {
	if !bytes.HasPrefix(bytes.TrimSpace(d.text), []byte("{")) {
		return []document{d}
	}
	var values []document
	decoder := json.NewDecoder(bytes.NewReader(d.text))
	for len(values) <= maxDocuments {
		var value json.RawMessage
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return []document{d}
		}
		before := d.text[:int(decoder.InputOffset())-len(bytes.TrimLeft(value, " \t\r\n"))]
		values = append(values, document{line: d.line + bytes.Count(before, []byte("\n")), text: value})
	}
	return values
}

// split returns the documents with content. A document ends at a line that begins with "---" or
// "...", followed by white space or the end of the line (YAML 1.2.2, section 9.1). Each of several
// consecutive JSON objects is a document.
func split(text []byte) ([]document, error) {
	var documents []document
	var current bytes.Buffer
	number, begins, written := 0, 0, false
	end := func() error {
		if written {
			documents = append(documents, document{line: begins, text: bytes.Clone(current.Bytes())}.values()...)
			if len(documents) > maxDocuments {
				return fmt.Errorf("line %d: the text has more than %d documents: split it", documents[maxDocuments].line, maxDocuments)
			}
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
		begins = cmp.Or(begins, number)
		content := bytes.TrimSpace(line)
		written = written || len(content) > 0 && content[0] != '#' && content[0] != '%'
		current.Write(line)
	}
	return documents, end()
}

// cutMarker removes the marker of a document's begin or end from a line, and returns what follows
// it, which belongs to the next document.
func cutMarker(line []byte) (rest []byte, found bool) {
	for _, marker := range []string{"---", "..."} {
		rest, found := bytes.CutPrefix(line, []byte(marker))
		if found && (len(bytes.TrimRight(rest, "\r\n")) == 0 || rest[0] == ' ' || rest[0] == '\t') {
			return append([]byte("   "), rest...), true
		}
	}
	return line, false
}
