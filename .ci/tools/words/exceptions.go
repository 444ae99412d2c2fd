// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"strings"
)

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
