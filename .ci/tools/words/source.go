// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

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
