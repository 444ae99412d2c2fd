// SPDX-License-Identifier: Apache-2.0

package tallytest

import (
	"context"
	"errors"
	"sync"

	"github.com/meshcni/meshcni/interception"
)

// Backend is a dataplane that edits sets.
type Backend interface {
	interception.Dataplane
	UpdateSet(context.Context, *interception.Netns, interception.Owner, interception.SetName, interception.SetEdit) error
}

// Tallier is a dataplane that counts.
type Tallier interface {
	Tally(context.Context, *interception.Netns, interception.Owner, ...interception.SetName) (string, error)
}

// ErrBroken is the error of counts while they fail.
var ErrBroken = errors.New("no count")

// Watched is a dataplane that counts as its Backend does, and not at all if that cannot.
type Watched struct {
	Backend

	told func()

	mu     sync.Mutex
	fails  bool
	recent [3]string // the last counts, the latest one first
	again  func() (string, error)
}

// Watch watches the counts of a dataplane. After each one it calls told.
func Watch(backend Backend, told func()) *Watched { return &Watched{Backend: backend, told: told} }

// Fail has the next counts fail, or succeed again.
func (w *Watched) Fail(fails bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails = fails
}

// Tally implements [Tallier].
func (w *Watched) Tally(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, sets ...interception.SetName,
) (tally string, err error) {
	defer w.told()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fails {
		return "", ErrBroken
	}
	tallier, is := w.Backend.(Tallier)
	if !is {
		return "", nil
	}
	tally, err = tallier.Tally(ctx, ns, owner, sets...)
	w.recent = [3]string{tally, w.recent[0], w.recent[1]}
	w.again = func() (string, error) { return tallier.Tally(context.WithoutCancel(ctx), ns, owner, sets...) }
	return tally, err
}

// Settled reports whether the last three counts are what a count returns now. At most the first two
// of these belong to a look of the agent: it knows of all changes so far, its own among them, has
// looked, and notices the next one. Without a [Tallier] the kernel tells of each.
func (w *Watched) Settled() bool {
	if _, is := w.Backend.(Tallier); !is {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again == nil {
		return false
	}
	now, err := w.again()
	return err == nil && now != "" && w.recent == [3]string{now, now, now}
}
