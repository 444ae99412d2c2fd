// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"io"
	"log/slog"

	"github.com/meshcni/meshcni/interception/podsource"
)

// maxTranscript bounds what is kept of a call's log: the agent takes 1 MiB at once.
const maxTranscript = 256 << 10

// transcript passes a log on, line by line, and keeps it for whoever takes it once the command is through.
type transcript struct {
	to   io.Writer
	kept []byte
}

// Write takes one line.
func (t *transcript) Write(line []byte) (int, error) {
	if len(t.kept)+len(line) <= maxTranscript {
		t.kept = append(t.kept, line...)
	}
	return t.to.Write(line)
}

// matters says whether there is more than information.
func (t *transcript) matters() bool {
	return bytes.Contains(t.kept, []byte(`"level":"WARN"`)) || bytes.Contains(t.kept, []byte(`"level":"ERROR"`))
}

// entries are the lines as the agent takes them.
func (t *transcript) entries() []podsource.LogEntry {
	var entries []podsource.LogEntry
	for line := range bytes.Lines(t.kept) {
		if entry, err := podsource.ParseLogLine(line); err == nil { // slog wrote it, so that it can't be another
			entries = append(entries, entry)
		}
	}
	return entries
}

// newLogger writes JSON lines.
func newLogger(to io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level}))
}
