// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// line is a line of prose.
type line struct {
	number int
	text   string
	// columns is how wide the line is, links aside; 0 for a line that cannot be wrapped.
	columns int
}

// read returns the prose of a file: none for files of other kinds.
func read(tree fs.FS, name string) ([]line, error) {
	extension := path.Ext(name)
	if extension != ".md" && extension != ".go" {
		return nil, nil
	}
	data, err := fs.ReadFile(tree, name)
	if err != nil {
		return nil, err
	}
	if extension == ".md" {
		return markdown(string(data)), nil
	}
	return source(data, strings.HasSuffix(name, "_test.go"))
}

// markdown returns the lines of a document, without its blocks of code.
func markdown(text string) []line {
	var lines []line
	code, unused := false, false
	for i, text := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(text)
		if heading := strings.HasPrefix(trimmed, "#"); heading && !code {
			unused = trimmed == headingUnused
		}
		switch {
		case strings.HasPrefix(trimmed, "```"):
			code = !code
		case code:
		case strings.HasPrefix(trimmed, "|"):
			if !unused { // the glossary itself has the words
				lines = append(lines, line{number: i + 1, text: text})
			}
		default:
			lines = append(lines, line{i + 1, text, columns(text)})
		}
	}
	return lines
}

// columns returns the width of a line without its links, which cannot be wrapped.
func columns(text string) int {
	return utf8.RuneCountInString(link().ReplaceAllString(text, ""))
}

func link() *regexp.Regexp {
	return regexp.MustCompile(`\]\([^)]*\)|https?://\S+`)
}

// source returns the comments of a Go file and, unless it is a test, its string literals.
func source(data []byte, test bool) ([]line, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var lines []line
	for _, group := range file.Comments {
		lines = append(lines, comments(files, group, strings.Split(string(data), "\n"))...)
	}
	if test {
		return lines, nil
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			for i, text := range strings.Split(literal.Value, "\n") {
				lines = append(lines, line{number: files.Position(literal.Pos()).Line + i, text: text})
			}
		}
		return true
	})
	return lines, nil
}

// comments returns the lines of a comment. What an example prints is no prose, and ends it.
func comments(files *token.FileSet, group *ast.CommentGroup, whole []string) []line {
	var lines []line
	for _, comment := range group.List {
		at := files.Position(comment.Pos())
		if body := strings.ToLower(strings.TrimSpace(strings.TrimPrefix(comment.Text, "//"))); strings.HasPrefix(body, "output:") ||
			strings.HasPrefix(body, "unordered output:") {
			break
		}
		l := line{number: at.Line, text: comment.Text}
		if ownLine := strings.TrimSpace(whole[at.Line-1]) == comment.Text; ownLine && isProse(comment.Text) {
			l.columns = columns(whole[at.Line-1])
		}
		lines = append(lines, l)
	}
	return lines
}

// isProse tells sentences from code in a comment and from directives, such as //nolint:x.
func isProse(comment string) bool {
	return strings.HasPrefix(comment, "// ")
}
