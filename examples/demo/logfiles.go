// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
)

// logFiles shows what was written into the logs since it was last asked.
type logFiles struct {
	node node
	seen map[string]int
}

func newLogFiles(n node) *logFiles { return &logFiles{n, map[string]int{}} }

// show prints what is new, for those who asked for more. A log that can't be read is shown as such.
func (l *logFiles) show(p progress) {
	if !p.verbose {
		return
	}
	entries, err := os.ReadDir(l.node.logs())
	if err != nil {
		p.more("logs", err.Error())
	}
	for _, entry := range entries {
		path := filepath.Join(l.node.logs(), entry.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			text = []byte(err.Error())
		}
		fresh := string(text[min(l.seen[path], len(text)):])
		l.seen[path] = len(text)
		p.more(entry.Name(), fresh)
	}
}
