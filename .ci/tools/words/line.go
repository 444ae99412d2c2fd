// SPDX-License-Identifier: Apache-2.0

package main

import (
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
