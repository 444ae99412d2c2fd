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

// Word is what the watch on the installation's object has said last: an object that only the end of the installation removes.
type Word int

// The words. A watch that says nothing more, because it is broken, has said what it said before.
const (
	// Unheard says that nobody watches, or that the object was never there.
	Unheard Word = iota
	// There says that the object is there.
	There
	// Removed says that the object was there, and is no more.
	Removed
)

// standing is what one answer of the API server says of the DaemonSet.
type standing int

const (
	unclear standing = iota // there is no answer, or none that tells
	wanted                  // the DaemonSet is there, and nothing says that it leaves this node
	leaving                 // the DaemonSet or its namespace is being deleted, or this node isn't selected any more
	missing                 // there is no such DaemonSet, and there was one before
	refused                 // the API server doesn't know the service account (401), or the role is gone (403)
)

// observation is an answer of the API server, and the watch's last word at that time.
type observation struct {
	set  standing
	word Word
}

// verdict is what a daemon that was told to stop does about the plugin.
type verdict int

const (
	undecided verdict = iota // ask again; without more answers, everything stays
	stay
	uninstall
)

// lasting is how many answers in a row, a pause apart, must show that the DaemonSet is gone. Something that is deleted and made anew, as by
// kubectl replace --force, is gone for a moment, too.
const lasting = 5

// decide is the whole rule, for the answers so far, in their order. The API server's word on the DaemonSet counts at once. That it has
// none, or refuses to say, counts when it lasts; and a refusal only beside the watch's word that the installation has ended, since a role or a
// service account may be made anew. Run is how many of the last answers show that the DaemonSet is gone.
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

// isGone reports whether an answer shows that the DaemonSet is gone.
func (o observation) isGone() bool {
	return o.set == missing || (o.set == refused && o.word == Removed)
}
