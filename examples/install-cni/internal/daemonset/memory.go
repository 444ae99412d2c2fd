// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"
)

// Memory is what the API server has said before. The zero value remembers nothing; it is safe for use by several goroutines.
type Memory struct {
	mu       sync.Mutex
	uid      string    // of the DaemonSet; empty if it was never seen
	seen     time.Time // when it last was
	token    [sha256.Size]byte
	accepted time.Time // when the server last took that token; zero: never
}

// trusted is for how long a token that the server took counts as one that it knew. The token is tried every [Interval]. When a service
// account is deleted together with its DaemonSet, the pods follow one by one: Kubernetes' garbage collector deletes some 20 objects a
// second, so that ten thousand nodes take it 8 minutes.
const trusted = 30 * time.Minute

// note remembers an answer that the server gave to who sent a token.
func (m *Memory) note(a answer, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.Kind == kindDaemonSet {
		m.uid, m.seen = a.Metadata.UID, now
	}
	if a.token != "" && a.accepts() {
		m.token, m.accepted = sha256.Sum256([]byte(a.token)), now
	}
}

// sawIt says when and how the DaemonSet was last there.
func (m *Memory) sawIt() (how string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("with UID %q at %s", m.uid, m.seen.UTC().Format(time.RFC3339)), !m.seen.IsZero()
}

// knew says when the server last took a token, if that was a short while ago.
func (m *Memory) knew(token string, now time.Time) (when time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	same := !m.accepted.IsZero() && m.token == sha256.Sum256([]byte(token))
	return m.accepted, same && now.Sub(m.accepted) <= trusted
}
