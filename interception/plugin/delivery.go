// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/spool"
)

// deliver sends the call's log and result to the agent, or keeps them on the disk. It is the last
// thing that a call does, and does not change the plugin's answer.
func (c *call) deliver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.Limits.Tell)
	defer cancel()
	defer c.connection.Close() //nolint:errcheck // the agent's answers have been read
	agent := podsource.Agent{RunDir: c.runDir, CallTimeout: c.Limits.Tell, Kept: &c.connection}
	logged, reported := len(c.transcript.kept) == 0, c.report.Command != "ADD"
	c.report = boundedResult(c.report)
	switch {
	case !c.tells():
	case !reported && c.agent != agentAbsent:
		failedReport, failedLog := agent.Tell(ctx, []podsource.Result{c.report}, c.transcript.entries())
		reported, logged = failedReport == nil, failedLog == nil
	case !logged:
		logged = agent.Log(ctx, c.transcript.entries()) == nil
	}
	if !logged {
		c.keep(spool.PluginLog(c.runDir, c.Name), c.transcript.kept)
	}
	if !reported {
		if line, err := json.Marshal(c.report); err == nil {
			c.keep(spool.PluginResults(c.runDir, c.Name), line)
		}
	}
}

// tells reports whether to tell the agent at once. If no source was asked, and the log has neither
// warnings nor errors, both log and result wait on the disk: there are many such pods, and they
// must cost nothing. An agent that has just kept the call waiting doesn't get another chance to.
func (c *call) tells() bool {
	switch c.agent {
	case agentThere:
		return true
	case agentFailed:
		return false
	case agentAbsent, agentUnknown:
	}
	if c.agent == agentUnknown && !c.transcript.matters() {
		return false
	}
	for _, socket := range []string{podsource.AgentSocket, spool.IstioLogSocket} {
		if _, err := os.Lstat(filepath.Join(c.runDir, socket)); err == nil {
			return true
		}
	}
	return false
}

// keep writes text to the disk. Without a run directory nothing is installed, and standard error
// must be enough.
func (c *call) keep(to spool.Spool, text []byte) {
	if err := to.Append(text); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.transcript.kept = nil
		c.log.Warn("can't keep what the agent should know", "error", err.Error())
	}
}

// Bounds of a result.
const (
	maxWarnings = 20
	maxField    = 2 << 10
)

func boundedResult(r podsource.Result) podsource.Result {
	if more := len(r.Warnings) - maxWarnings; more > 0 {
		r.Warnings = append(r.Warnings[:maxWarnings:maxWarnings], "and more")
	}
	for i, warning := range r.Warnings {
		r.Warnings[i] = boundedTo(warning, maxField)
	}
	r.Detail = boundedTo(r.Detail, maxField)
	if r.Error != nil {
		r.Error.Message, r.Error.Details = boundedTo(r.Error.Message, maxField), boundedTo(r.Error.Details, maxField)
	}
	return r
}

// maxTranscript bounds what is kept of a call's log: the agent takes 1 MiB at once.
const maxTranscript = 256 << 10

// transcript passes a log on, line by line, and keeps a copy for deliver.
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

// matters reports whether there is a warning or an error.
func (t *transcript) matters() bool {
	return bytes.Contains(t.kept, []byte(`"level":"WARN"`)) || bytes.Contains(t.kept, []byte(`"level":"ERROR"`))
}

// entries returns the lines in the form that the agent takes.
func (t *transcript) entries() []podsource.LogEntry {
	var entries []podsource.LogEntry
	for line := range bytes.Lines(t.kept) {
		if entry, err := podsource.ParseLogLine(line); err == nil { // never an error: slog wrote the line
			entries = append(entries, entry)
		}
	}
	return entries
}

// newLogger writes JSON lines. Their times are UTC, so that no time zone is read from the disk.
func newLogger(to io.Writer, level slog.Leveler) *slog.Logger {
	inUTC := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
			a.Value = slog.TimeValue(a.Value.Time().UTC())
		}
		return a
	}
	return slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level, ReplaceAttr: inUTC}))
}
