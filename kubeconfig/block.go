// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// blocks reads YAML in block style.
type blocks struct {
	lines []line
	next  int
}

// line is a line that is neither blank nor a comment.
type line struct {
	number, indent int
	text           string
}

func (l line) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{l.number}, args...)...)
}

// isItem reports whether the line starts an item of a list.
func (l line) isItem() bool { return l.text == "-" || strings.HasPrefix(l.text, "- ") }

func parseBlocks(text string) (*node, error) {
	var b blocks
	for i, raw := range strings.Split(text, "\n") {
		if err := b.add(i+1, strings.TrimRight(raw, " \r")); err != nil {
			return nil, err
		}
	}
	if len(b.lines) == 0 {
		return nil, errors.New("it is empty")
	}
	root, err := b.block(b.lines[0].indent, 0)
	if err == nil && b.next < len(b.lines) {
		err = b.lines[b.next].errorf("its indentation fits nothing above it")
	}
	return root, err
}

// add takes a line, and skips blank lines and comments.
func (b *blocks) add(number int, raw string) error {
	content := strings.TrimLeft(raw, " ")
	l := line{number, len(raw) - len(content), content}
	switch {
	case content == "" || content[0] == '#' || (content == "---" && len(b.lines) == 0):
		return nil
	case content[0] == '\t':
		return l.errorf("it is indented with a tab, and YAML wants blanks")
	case raw == "---" || raw == "..." || raw[0] == '%':
		return l.errorf("directives and several documents are not supported")
	}
	b.lines = append(b.lines, l)
	return nil
}

// block reads the mapping or list whose lines have that indentation.
func (b *blocks) block(indent, depth int) (*node, error) {
	first := b.lines[b.next]
	if depth > maxDepth {
		return nil, first.errorf("too many levels")
	}
	n := &node{kind: mappingNode, line: first.number}
	read := b.entry
	if first.isItem() {
		n.kind, read = listNode, b.item
	}
	for b.next < len(b.lines) && b.lines[b.next].indent >= indent {
		l := b.lines[b.next]
		if l.indent > indent {
			return nil, l.errorf("it is indented deeper than the line above allows (values of several lines are not supported)")
		}
		if l.isItem() != first.isItem() {
			return n, nil // the mapping that this list is in may go on here, with the same indentation
		}
		if err := read(n, l, depth); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// item reads the text after a dash as if it were a line of its own, indented that far.
func (b *blocks) item(n *node, l line, depth int) error {
	rest := strings.TrimLeft(l.text[1:], " ")
	if rest == "" || rest[0] == '#' {
		b.next++
		value, err := b.below(l, l.indent+1, depth)
		n.items = append(n.items, value)
		return err
	}
	inner := line{l.number, l.indent + len(l.text) - len(rest), rest}
	if _, _, isEntry, err := inner.split(); err != nil {
		return err
	} else if isEntry || inner.isItem() {
		b.lines[b.next] = inner
		value, err := b.block(inner.indent, depth+1)
		n.items = append(n.items, value)
		return err
	}
	b.next++
	value, err := inner.value(rest)
	n.items = append(n.items, value)
	return err
}

// entry reads "key: value", or "key:" with its value on the lines below.
func (b *blocks) entry(n *node, l line, depth int) error {
	key, rest, isEntry, err := l.split()
	if err != nil {
		return err
	}
	if !isEntry {
		return l.errorf(`it is not "key: value"`)
	}
	b.next++
	var value *node
	if rest == "" || rest[0] == '#' {
		deeper := l.indent + 1
		if b.next < len(b.lines) && b.lines[b.next].isItem() {
			deeper = l.indent // a list needs no more indentation than its key
		}
		value, err = b.below(l, deeper, depth)
	} else {
		value, err = l.value(rest)
	}
	if err != nil {
		return err
	}
	return n.add(key, value)
}

// below reads the block below l if it has at least that indentation; otherwise the value is null.
func (b *blocks) below(l line, indent, depth int) (*node, error) {
	if b.next == len(b.lines) || b.lines[b.next].indent < indent {
		return &node{line: l.number}, nil
	}
	return b.block(b.lines[b.next].indent, depth+1)
}

// split splits "key: value".
func (l line) split() (key, rest string, isEntry bool, err error) {
	if l.text[0] == '"' || l.text[0] == '\'' {
		key, rest, err = l.quoted(l.text)
		if err != nil || !strings.HasPrefix(rest+" ", ": ") {
			return "", "", false, err
		}
		rest = rest[1:]
	} else if key, rest, isEntry = strings.Cut(l.text+" ", ": "); !isEntry || strings.Contains(key, " #") {
		return "", "", false, nil
	} else if strings.ContainsAny(key[:min(len(key), 1)], "?&*!|>%@`{[<,]}\t") {
		return "", "", false, l.errorf("it starts with %q, which is not supported", key[:1])
	}
	return strings.TrimRight(key, " "), strings.Trim(rest, " "), true, nil
}

// value reads a value on one line, and the comment after it.
func (l line) value(text string) (*node, error) {
	n := &node{kind: scalarNode, line: l.number}
	var rest string
	switch text[0] {
	case '"', '\'':
		var err error
		if n.text, rest, err = l.quoted(text); err != nil {
			return nil, err
		}
	case '{', '[':
		n.kind, rest = mappingNode, strings.TrimPrefix(text, "{}")
		if text[0] == '[' {
			n.kind, rest = listNode, strings.TrimPrefix(text, "[]")
		}
		if rest == text {
			return nil, l.errorf("it has a list or mapping in braces or brackets, which is only supported when empty")
		}
	default:
		return n, l.plain(n, text)
	}
	if comment := strings.TrimLeft(rest, " "); comment != "" && (comment == rest || comment[0] != '#') {
		return nil, l.errorf("there is something after its value")
	}
	return n, nil
}

// plain reads an unquoted value.
func (l line) plain(n *node, text string) error {
	if strings.ContainsAny(text[:1], "&*!|>%@`?,]}") {
		return l.errorf("its value starts with %q, which is not supported", text[:1])
	}
	text, _, _ = strings.Cut(text, " #")
	text = strings.TrimRight(text, " ")
	if strings.HasPrefix(text+" ", "- ") || strings.Contains(text+" ", ": ") || strings.Contains(text, "\t") {
		return l.errorf("its value has a tab, or a blank after a colon or a dash: put it in quotes")
	}
	switch text {
	case "~", "null", "Null", "NULL":
		n.kind = nullNode
	default:
		n.text = text
	}
	return nil
}

// quoted reads a text in single or double quotes, and returns the rest of the line.
func (l line) quoted(text string) (content, rest string, err error) {
	if text[0] == '\'' {
		for i := 1; i < len(text); i++ {
			if text[i] != '\'' {
				continue
			}
			if !strings.HasPrefix(text[i+1:], "'") {
				return strings.ReplaceAll(text[1:i], "''", "'"), text[i+1:], nil
			}
			i++
		}
		return "", "", l.errorf("a quote is not closed in it")
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			if json.Unmarshal([]byte(text[:i+1]), &content) != nil {
				return "", "", l.errorf(`it has a backslash followed by something that is not supported (\" \\ \/ \b \f \n \r \t and \uXXXX are)`)
			}
			return content, text[i+1:], nil
		}
	}
	return "", "", l.errorf("a quote is not closed in it")
}
