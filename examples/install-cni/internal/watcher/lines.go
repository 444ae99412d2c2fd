// SPDX-License-Identifier: Apache-2.0

package watcher

import "bytes"

// maxLine bounds what is kept of a line.
const maxLine = 64 << 10

// lineWriter hands over whole lines, without their ends. Of one that is too long there is only the beginning.
type lineWriter struct {
	take func(line []byte)
	part []byte
}

// Write takes a part of the text.
func (w *lineWriter) Write(p []byte) (int, error) {
	all := len(p)
	for {
		line, rest, found := bytes.Cut(p, []byte("\n"))
		w.part = append(w.part, line[:min(len(line), maxLine-len(w.part))]...)
		if !found {
			return all, nil
		}
		w.take(w.part)
		w.part, p = w.part[:0], rest
	}
}
