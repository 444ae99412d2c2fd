// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"sync"
	"time"
)

// Memory is what the API server has said before. The zero value remembers nothing; it is safe for use by several goroutines.
type Memory struct {
	mu        sync.Mutex
	uid       string    // of the DaemonSet
	seen      time.Time // when the DaemonSet last was there; zero if it never was
	namespace bool      // its namespace was told about
	word      Word
}

// note remembers an answer about an object.
func (m *Memory) note(a answer, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch a.Kind {
	case kindDaemonSet:
		m.uid, m.seen = a.Metadata.UID, now
	case kindNamespace:
		m.namespace = true
	}
}

// Hear remembers what the watch on the installation's object says: whether it is there. Changed reports whether that is another word.
func (m *Memory) Hear(there bool) (word Word, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.word
	switch {
	case there:
		m.word = There
	case before == There:
		m.word = Removed
	}
	return m.word, m.word != before
}

// last is the watch's last word.
func (m *Memory) last() Word {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.word
}

// sawIt says when and how the DaemonSet was last there.
func (m *Memory) sawIt() (how string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("with UID %q at %s", m.uid, m.seen.UTC().Format(time.RFC3339)), !m.seen.IsZero()
}

// sawNamespace says whether the API server told about the namespace before.
func (m *Memory) sawNamespace() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.namespace
}
