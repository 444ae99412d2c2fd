// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

const (
	glossaryFile  = "docs/glossary.md"
	headingUnused = "## Words not used"
	mostColumns   = 100
)

// glossary has the words that are not used.
type glossary []word

// word is a row of the glossary: a word, or several with commas, and what to write instead.
type word struct {
	pattern *regexp.Regexp
	instead string
}

func readGlossary(tree fs.FS) (glossary, error) {
	data, err := fs.ReadFile(tree, glossaryFile)
	if err != nil {
		return nil, err
	}
	_, section, _ := strings.Cut(string(data), "\n"+headingUnused+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var words glossary
	for row := range strings.Lines(section) {
		cells := strings.Split(row, "|")
		if len(cells) != 4 || strings.Contains(row, "---") {
			continue
		}
		words = append(words, newWord(cells[1], strings.TrimSpace(cells[2])))
	}
	if len(words) < 2 { // the first row is the heading
		return nil, errors.New(glossaryFile + ` has no table of two columns under "` + headingUnused + `"`)
	}
	return words[1:], nil
}

func newWord(cell, instead string) word {
	var alternatives []string
	for _, alternative := range strings.Split(cell, ",") {
		alternatives = append(alternatives, regexp.QuoteMeta(strings.Trim(alternative, " `")))
	}
	return word{regexp.MustCompile(`(?i)\b(?:` + strings.Join(alternatives, "|") + `)\b`), instead}
}

// complaints returns what is wrong with a file's lines.
func (g glossary) complaints(name string, lines []line) []string {
	var complaints []string
	for _, line := range lines {
		if line.columns > mostColumns {
			complaints = append(complaints, fmt.Sprintf("%s:%d: %d columns, more than %d: wrap it",
				name, line.number, line.columns, mostColumns))
		}
		for _, word := range g {
			if found := word.pattern.FindString(line.text); found != "" {
				complaints = append(complaints, fmt.Sprintf("%s:%d: %q: %s", name, line.number, found, word.instead))
			}
		}
	}
	return complaints
}

const exceptionsFile = ".ci/words"

// exceptions are the files that are let off.
type exceptions []*exception

type exception struct {
	path   string
	needed bool
}

func readExceptions(tree fs.FS) (exceptions, error) {
	data, err := fs.ReadFile(tree, exceptionsFile)
	if err != nil {
		return nil, err
	}
	var all exceptions
	for row := range strings.Lines(string(data)) {
		row = strings.TrimSpace(row)
		if row == "" || strings.HasPrefix(row, "#") {
			continue
		}
		path, reason, _ := strings.Cut(row, ": ")
		if reason == "" {
			return nil, fmt.Errorf("%s: %q has no reason: write path: reason", exceptionsFile, row)
		}
		all = append(all, &exception{path: path})
	}
	return all, nil
}

// cover reports whether a file is let off, and notes whether it has to be.
func (e exceptions) cover(name string, needed bool) bool {
	for _, exception := range e {
		if name == exception.path || strings.HasSuffix(exception.path, "/") && strings.HasPrefix(name, exception.path) {
			exception.needed = exception.needed || needed
			return true
		}
	}
	return false
}

// complaints returns the exceptions that no file needed.
func (e exceptions) complaints() []string {
	var complaints []string
	for _, exception := range e {
		if !exception.needed {
			complaints = append(complaints, fmt.Sprintf("%s: %s needs no exception: remove the line", exceptionsFile, exception.path))
		}
	}
	return complaints
}
