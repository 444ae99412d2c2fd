// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// ErrSuperseded is in the error of a part if a newer daemon on this node has taken over. The part
// writes nothing until that daemon has ended, because two versions would overwrite each other's
// files for as long as both run. On Linux, a daemon that is killed has 20 seconds for its next
// process to begin, and then an older one is in charge again. No event tells of such an end: an
// error in the chain then has a method Again() time.Time, as one of [ErrWaiting] may have.
var ErrSuperseded = errors.New("a newer daemon is in charge of this node")

const (
	// restartWithin is how long a daemon that was killed has for its next process to begin, before an
	// older one is in charge of the node again.
	restartWithin = 20 * time.Second
	// lookInterval is how often an older daemon looks whether the newer one lives.
	lookInterval = 10 * time.Second
)

// session identifies the daemon that keeps the node. It is part of the claim.
type session struct {
	// Number counts the daemons that have kept this node: the newest has the highest number,
	// however the clock has changed.
	Number uint64 `json:"number"`
	// ID is random, one per daemon process. It is empty after that daemon has left.
	ID string `json:"id,omitempty"`
	// Lock is which daemons have locked the plugin's own file: lockAll, lockSome, or empty.
	Lock string `json:"lock,omitempty"`
	// Marked means that the daemon has marked its number in the plugin's lock file: the mark lasts as
	// long as the daemon.
	Marked bool `json:"marked,omitempty"`
}

// take calls number, and records whether the claim was not this daemon's before.
func (c *claims) take(found *claim) error {
	before, stoodBack := c.own.Number, c.superseded
	err := c.number(found)
	c.taken = err == nil && (c.taken || stoodBack || c.own.Number != before)
	return err
}

// number makes the claim this daemon's: at first as the newest, later only if no newer daemon has
// taken the claim, or that one has left or was killed. found is the claim on disk, or nil if it is
// unusable; nil does not show that a newer daemon has ended, whose claim was the last that was
// read.
func (c *claims) number(found *claim) error {
	if found == nil && c.superseded {
		known := c.remembered()
		if found = &known; known.Session.Number == 0 {
			return ErrSuperseded
		}
	}
	stored := session{}
	if found != nil {
		stored = found.Session
	}
	switch {
	case stored.Number == c.own.Number && stored.ID == c.own.ID:
	case c.own.Number == 0:
		c.own.Number = stored.Number + 1
		c.follow(stored)
	case stored.Number < c.own.Number: // lost, or written by a version without sessions
	case stored.ID == "", c.isOver(stored):
		c.own.Number = stored.Number + 1
		c.follow(stored)
	default:
		return c.standBack(found)
	}
	if c.superseded {
		c.options.emit(News, "the newer daemon has ended; this one is in charge of the node again", "session", c.own.Number)
	}
	c.superseded, c.ended = false, ending{}
	return nil
}

// standBack records that a newer daemon has the claim.
func (c *claims) standBack(found *claim) error {
	if !c.superseded {
		c.options.emit(Warning, "a newer daemon is in charge of this node now; this one writes nothing until that one has ended",
			"version", found.Version, "session", found.Session.Number)
	}
	c.superseded = true
	err := fmt.Errorf("%w (version %q): this one writes nothing until that one has ended", ErrSuperseded, found.Version)
	if found.Session.Marked && c.lock != nil {
		return &laterError{err, c.options.Now().Add(lookInterval)}
	}
	return err
}

// ending is when a session's daemon was first seen to have ended without leaving.
type ending struct {
	number uint64
	seen   time.Time
}

// isOver reports whether the daemon of a session has ended without leaving, and its next process
// has not begun in time.
func (c *claims) isOver(s session) bool {
	if !c.hasEnded(s) {
		c.ended = ending{}
		return false
	}
	now := c.options.Now()
	if c.ended.number != s.Number {
		c.ended = ending{s.Number, now}
	}
	return now.Sub(c.ended.seen) >= restartWithin
}

// hasEnded reports whether the mark of a session's daemon is gone. Marks in a lock file that was
// replaced say nothing.
func (c *claims) hasEnded(s session) bool {
	if !s.Marked || c.lock == nil {
		return false
	}
	lives, err := isMarked(c.lock, s.Number)
	if err != nil || lives {
		return false
	}
	own, err := c.lock.Stat()
	return err == nil && c.isLockFile(own)
}

func (c *claims) isLockFile(file os.FileInfo) bool {
	there, err := os.Stat(c.in(nil).In(c.options.lockName()))
	return err == nil && os.SameFile(file, there)
}

// keep checks that the claim is this daemon's; [ErrSuperseded] means that a newer one has it.
func (c *claims) keep(o filesystem.Observer) error { return c.update(o, func(*claim) {}) }

// leave records the end of this daemon, for an older one that still runs, if it has the claim.
func (c *claims) leave(o filesystem.Observer) error {
	current, err := c.load()
	if err != nil || current.Session != c.own {
		return nil //nolint:nilerr // an unreadable claim does not name this daemon
	}
	return c.update(o, func(claim *claim) { claim.Session.ID = "" })
}

// forget starts over with session zero, so that the next update takes the claim: the caller knows
// that no other daemon is at work.
func (c *claims) forget() { c.own.Number, c.own.Lock, c.superseded = 0, "", false }

// What a session records about the plugin's lock file; nothing in versions without that file.
const (
	lockAll  = "all"  // every daemon of the plugin that may be running has locked it
	lockSome = "some" // this daemon has; an older version that does not may be running
)

// mayLackLock reports whether a daemon may be running that has not locked the plugin's own file.
func (s session) mayLackLock() bool { return s.Lock == lockSome || s.Lock == "" && s.ID != "" }

// mayLackLock reports the same for the claim on disk. An unreadable claim counts as true.
func (c *claims) mayLackLock() bool {
	current, err := c.load()
	return !isMissing(err) && (err != nil || current.Session.mayLackLock())
}

// attend records what the daemon of these claims has locked.
func (c *claims) attend(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lock, c.sole = h.own, h.sole
	c.own.Marked = c.own.Marked && c.lock != nil && mark(c.lock, c.own.Number) == nil
}

// follow updates what this daemon's session records of the lock after it has followed another.
func (c *claims) follow(stored session) {
	c.own.Marked = c.lock != nil && mark(c.lock, c.own.Number) == nil
	switch {
	case c.lock == nil:
		c.own.Lock = ""
	case c.own.Lock == lockSome, stored.mayLackLock() && !c.sole:
		c.own.Lock = lockSome
	default:
		c.own.Lock = lockAll
	}
}

// anyAge is for removeStale while no other process can be writing.
const anyAge = -time.Hour

// Attend registers a daemon on this node, until release is called, which lets an older daemon that
// still runs continue. It creates the plugin's run directory, which a reboot may remove. It waits
// until an uninstall that is under way, or the context, ends.
func (i *Installer) Attend(ctx context.Context) (release func(), err error) {
	i = i.at(ctx)
	h, err := i.holdAsDaemon(ctx, func() { // now only the plugin may be writing, in its run directory
		i.removeStale(i.options.NetDir, anyAge)
		i.removeStale(i.options.BinDir, anyAge)
	})
	if err != nil {
		return nil, err
	}
	i.claims.attend(h)
	i.catchUp(i.netDir(), i.binDir(), i.runDir())
	if err := i.forgetRequest(); err != nil && !isMissing(err) {
		i.options.emit(Warning, "can't withdraw a request to uninstall that an earlier daemon was given", "error", err)
	}
	if err := i.runDir().Make(runDirMode); err != nil {
		i.options.emit(Warning, "can't make the plugin's run directory yet", "error", err)
	}
	return func() {
		if err := i.claims.leave(i.observer); err != nil {
			i.options.emit(Warning, "can't tell other daemons that this one is ending", "error", err)
		}
		h.release()
	}, nil
}
