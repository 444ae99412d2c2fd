// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"sync"
	"time"
)

// Memory is what the API server has answered so far. The zero value remembers nothing; it is safe
// for concurrent use.
type Memory struct {
	mu        sync.Mutex
	uid       string    // of the DaemonSet
	seen      time.Time // when the DaemonSet was last seen; zero if it never was
	namespace bool      // the API server has answered about its namespace
	word      Word
}

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

// Hear remembers what the watch on the installation's object reports: whether the object exists. It
// returns the new word, and whether that differs from the last one.
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

func (m *Memory) last() Word {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.word
}

// sawIt returns when the DaemonSet was last seen, and its UID.
func (m *Memory) sawIt() (how string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("with UID %q at %s", m.uid, m.seen.UTC().Format(time.RFC3339)), !m.seen.IsZero()
}

// sawNamespace reports whether the API server has answered about the namespace before.
func (m *Memory) sawNamespace() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.namespace
}

// Word is the last report of the watch on the installation's object: an object that is removed only
// at the end of the installation.
type Word int

// The words. A broken watch reports nothing more, so its last word stays.
const (
	// Unheard means that the object is not watched, or was never seen.
	Unheard Word = iota
	// There means that the object exists.
	There
	// Removed means that the object existed, and was removed.
	Removed
)

// standing is what one answer of the API server means for the DaemonSet.
type standing int

const (
	unclear standing = iota // no answer, or one that proves nothing
	wanted                  // it exists, and nothing shows that it leaves this node
	leaving                 // it or its namespace is being deleted, or this node is deselected
	missing                 // it does not exist, but did before
	refused                 // the service account is unknown (401), or the role is missing (403)
)

// observation is an answer of the API server, and the watch's last word at that time.
type observation struct {
	set  standing
	word Word
}

// verdict is what a daemon that is stopping does about the plugin.
type verdict int

const (
	undecided verdict = iota // ask again; without more answers, everything stays
	stay
	uninstall
)

// lasting is how many answers in a row, a pause apart, must show that the DaemonSet is gone. An
// object that is deleted and recreated, as by kubectl replace --force, is gone for a moment, too.
const lasting = 5

// decide is the whole rule, for the answers so far, in their order. What the API server answers
// about an existing DaemonSet counts at once. Its answer that there is no DaemonSet, or its
// refusal, counts only if it lasts; a refusal also needs the watch's word that the installation has
// ended, since a role or a service account may be recreated. run is how many of the last answers
// show that the DaemonSet is gone.
func decide(answers []observation) (v verdict, run int) {
	for _, o := range answers {
		switch {
		case o.set == wanted:
			return stay, 0
		case o.set == leaving:
			return uninstall, run
		case o.isGone():
			run++
		default:
			run = 0
		}
		if run == lasting {
			return uninstall, run
		}
	}
	return undecided, run
}

func (o observation) isGone() bool {
	return o.set == missing || (o.set == refused && o.word == Removed)
}
