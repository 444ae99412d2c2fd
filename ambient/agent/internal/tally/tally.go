// SPDX-License-Identifier: Apache-2.0

package tally

import (
	"context"
	"sync"
	"time"

	"github.com/meshcni/meshcni/internal/upkeep"
)

// A count follows the one before after Every, or after Share times as long as that one took, and at
// the latest after Most.
const (
	Every = 300 * time.Millisecond
	Share = 100
	Most  = 3 * time.Second
)

// Tally compares counts. Its methods may be called concurrently.
type Tally struct {
	count func(context.Context) (string, error)

	mu       sync.Mutex
	base     string    // the count before the caller's last look, or after its last change
	known    bool      // and it succeeded
	due      time.Time // of the next count; zero before the first one
	retry    time.Time // the end of the pause after a count that failed
	again    time.Time // when to look after an own change; zero if there was none since the last look
	failures upkeep.Series
	changes  upkeep.Series
}

// New returns a Tally that counts with a function. The function returns the same text as long as
// nothing has changed, and "" if there is nothing to count. If it is nil, nothing is counted.
func New(count func(context.Context) (string, error)) *Tally {
	return &Tally{
		count: count, failures: upkeep.Failures(),
		changes: upkeep.Series{First: Every, Most: time.Minute, Calm: time.Hour},
	}
}

// Begin counts before the caller looks. After an error the caller looks again when Changed says so.
func (t *Tally) Begin(ctx context.Context) (err error) {
	if t.count == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.again.IsZero() {
		t.changes.Reset() // the last look has changed nothing
	}
	t.again = time.Time{}
	return t.begin(ctx)
}

// begin counts what later counts are compared with. The caller holds mu.
func (t *Tally) begin(ctx context.Context) (err error) {
	began := time.Now()
	if t.base, err = t.count(ctx); err != nil {
		if now := time.Now(); t.known || !now.Before(t.retry) { // otherwise the pause goes on
			t.retry = now.Add(t.failures.Next(now))
		}
		t.known, t.due = false, t.retry
		return err
	}
	t.known = true
	t.failures.Reset()
	t.await(began)
	return nil
}

// await sets the time of the next count after one. The caller holds mu.
func (t *Tally) await(began time.Time) {
	now := time.Now()
	t.due = now.Add(min(max(Every, Share*now.Sub(began)), Most))
}

// Recount counts again after the caller has changed something. The caller is also to look once
// more, since another program may undo the change before this count. If each look changes
// something, the pauses before the next one grow. A failed count has the same effect as in Begin.
func (t *Tally) Recount(ctx context.Context) {
	if t.count == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.begin(ctx)
	t.again = time.Now().Add(t.changes.Next(time.Now()))
}

// Changed counts, if it is time to, and reports whether the caller is to look. The caller also
// looks after a count that failed: if the next one fails, too, Begin returns the error.
func (t *Tally) Changed(ctx context.Context) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.counts() && !now.Before(t.due) {
		count, err := t.base, error(nil)
		if t.known {
			count, err = t.count(ctx)
		}
		if t.await(now); !t.known || err != nil || count != t.base {
			return true
		}
	}
	if t.again.IsZero() || now.Before(t.again) {
		return false
	}
	t.again = now.Add(Every) // if the caller does not look
	return true
}

// counts reports whether there is something to count. The caller holds mu.
func (t *Tally) counts() bool { return !t.due.IsZero() && (!t.known || t.base != "") }

// Next returns when to call Changed next; zero if there is no need to.
func (t *Tally) Next() (next time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts() {
		next = t.due
	}
	if !t.again.IsZero() && (next.IsZero() || t.again.Before(next)) {
		next = t.again
	}
	return next
}
