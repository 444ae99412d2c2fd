// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
)

// Process is a program to run. All fields must be set.
type Process struct {
	// Name is the program's name in the log.
	Name string
	// Command is the program and its arguments.
	Command []string
	// Log receives the program's log.
	Log *slog.Logger
	// OnLine receives each line of the program's standard output, without its end. Lines are cut after
	// 64 KiB. It is not called concurrently, and must not keep the line.
	OnLine func(line []byte)
}

// endWithin is how long a process may take to end by itself.
const endWithin = 3 * time.Second

// Run runs the program until it ends, or until ctx does: then it closes the program's standard
// input, and kills the program if it does not end within 3 s. The error is never nil: it is the
// cause of the end of ctx, or why the program ended, with the last error that the program logged.
func (p Process) Run(ctx context.Context) error {
	l := &logger{Process: p}
	process := exec.CommandContext(ctx, p.Command[0], p.Command[1:]...)
	process.Env = []string{} // proxy settings and the like are not for it
	process.Stdout = &lineWriter{take: p.OnLine}
	process.Stderr = &lineWriter{take: l.pass}
	// It ends when this pipe does, however this process ends.
	stdin, err := process.StdinPipe()
	if err != nil {
		return err
	}
	process.Cancel, process.WaitDelay = stdin.Close, endWithin
	if err := process.Start(); err != nil {
		return fmt.Errorf("start it: %w", err)
	}
	p.Log.Debug("a program was started", "program", p.Name, "process", process.Process.Pid, "command", p.Command)
	err = process.Wait()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx) // the reason for its end
	case err == nil:
		err = errors.New("it ended unexpectedly")
	}
	if last := l.lastError(); last != "" {
		err = fmt.Errorf("%w: %s", err, last)
	}
	return err
}

// logger passes on a program's log.
type logger struct {
	Process

	mu   sync.Mutex
	last string // the last error
}

func (l *logger) lastError() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// pass passes on a line of the program's log.
func (l *logger) pass(line []byte) {
	entry, err := podsource.ParseLogLine(line)
	if err != nil { // a panic, for example
		entry = podsource.LogEntry{Level: slog.LevelError, Message: string(line)}
	}
	attributes := []any{"from", l.Name}
	for _, key := range slices.Sorted(maps.Keys(entry.Attributes)) {
		attributes = append(attributes, key, entry.Attributes[key])
	}
	if entry.Level >= slog.LevelError {
		l.mu.Lock()
		l.last = entry.Message
		if cause := entry.Attributes["error"]; cause != "" {
			l.last += ": " + cause
		}
		l.mu.Unlock()
	}
	l.Log.Log(context.Background(), entry.Level, entry.Message, attributes...)
}

// maxLine bounds what is kept of a line.
const maxLine = 64 << 10

// lineWriter passes on whole lines, without their ends. It cuts lines that are too long.
type lineWriter struct {
	take func(line []byte)
	part []byte
}

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
