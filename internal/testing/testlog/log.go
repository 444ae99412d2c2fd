// SPDX-License-Identifier: Apache-2.0

package testlog

import (
	"bytes"
	"sync"
	"time"
)

// Patience is how long a test waits for an event: longer than the event takes on a busy machine,
// and short enough for the test to report what is missing before the time limit of the package.
const Patience = 5 * time.Minute

// Log keeps everything that is written to it. Create it with [New]; it is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

// New returns an empty log.
func New() *Log { return &Log{news: make(chan struct{}, 1)} }

// Write keeps p, and wakes the waiting test.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	l.Tell()
	return len(p), nil
}

// String returns everything that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Tell wakes the waiting test for an event that is not logged.
func (l *Log) Tell() {
	select {
	case l.news <- struct{}{}:
	default: // news is pending already
	}
}

// News is ready after a Write or Tell since it was last read. One goroutine reads it.
func (l *Log) News() <-chan struct{} { return l.news }

// Await returns true once the condition holds, and false if that takes longer than the patience. It
// checks the condition at the start and whenever News is ready. One goroutine waits at a time.
func (l *Log) Await(patience time.Duration, condition func() bool) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for !condition() {
		select {
		case <-l.news:
		case <-timer.C:
			return false
		}
	}
	return true
}
