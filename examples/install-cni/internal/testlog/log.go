// SPDX-License-Identifier: Apache-2.0

package testlog

import (
	"bytes"
	"sync"
	"time"
)

// Patience is how long a test waits for an event: longer than the event takes on a busy machine, and short enough for the
// test to report what is missing before the time limit of the package ends it.
const Patience = 5 * time.Minute

// Log keeps all that is written. Make it with [New]; it is safe for use by several goroutines.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

// New returns an empty log.
func New() *Log { return &Log{news: make(chan struct{}, 1)} }

// Write keeps p, and tells whoever waits.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	l.Tell()
	return len(p), nil
}

// String is all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Tell has whoever waits look again: something happened that isn't logged.
func (l *Log) Tell() {
	select {
	case l.news <- struct{}{}:
	default: // they will look anyway
	}
}

// News is ready when something was written, or told, since it was read last. One goroutine reads it.
func (l *Log) News() <-chan struct{} { return l.news }

// Await returns when the condition holds, which it asks at first and behind each news. It reports false when that took longer than the
// patience. One goroutine waits at a time.
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
