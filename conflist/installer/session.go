// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// ErrSuperseded is in the error of a part whose daemon has been followed by a newer one on this node. It writes nothing while that one
// is there, because two versions would restore their files against each other for as long as both run.
var ErrSuperseded = errors.New("a newer daemon keeps this node")

// session says which daemon keeps the node. It is part of the claim.
type session struct {
	// Number counts the daemons that have kept this node: the newest has the highest, whatever became of the clock between them.
	Number uint64 `json:"number"`
	// ID is random, one for each daemon's process. It is empty when that daemon has left.
	ID string `json:"id,omitempty"`
	// Lock says which daemons have locked the plugin's own file: lockAll, lockSome, or nothing.
	Lock string `json:"lock,omitempty"`
}

// take is number, and notes whether the claim was not this daemon's before.
func (c *claims) take(found *claim) error {
	before, stoodBack := c.own.Number, c.superseded
	err := c.number(found)
	c.taken = err == nil && (c.taken || stoodBack || c.own.Number != before)
	return err
}

// number makes the claim this daemon's: for the first time as the newest, later only if no newer one has taken it, or that one has left.
// found is what is on disk, nil if that can't be used; it is no sign then that a newer daemon has left.
func (c *claims) number(found *claim) error {
	stored := session{}
	if found != nil {
		stored = found.Session
	}
	switch {
	case stored == c.own:
	case c.own.Number == 0:
		c.own.Number = stored.Number + 1
		c.follow(stored)
	case found == nil && c.superseded:
		return ErrSuperseded
	case stored.Number < c.own.Number: // lost, or written by a version that knows of no sessions
	case stored.ID == "":
		c.own.Number = stored.Number + 1
		c.follow(stored)
	default:
		if !c.superseded {
			c.options.tell(Warning, "a newer daemon keeps this node now; this one writes nothing more until that one leaves",
				"version", found.Version, "session", stored.Number)
		}
		c.superseded = true
		return fmt.Errorf("%w (version %q): this one writes nothing until that one leaves", ErrSuperseded, found.Version)
	}
	if c.superseded {
		c.options.tell(News, "the newer daemon has left; this one keeps the node again", "session", c.own.Number)
	}
	c.superseded = false
	return nil
}

// keep makes sure that the claim is there and this daemon's; the error wraps [ErrSuperseded] if it is a newer one's.
func (c *claims) keep(o filesystem.Observer) error { return c.update(o, func(*claim) {}) }

// leave tells an older daemon that still runs that this one has ended, if the claim is this one's.
func (c *claims) leave(o filesystem.Observer) error {
	current, err := c.load()
	if err != nil || current.Session != c.own {
		return nil //nolint:nilerr // then it doesn't name this daemon
	}
	return c.update(o, func(claim *claim) { claim.Session.ID = "" })
}

// forget begins anew, as a process that no daemon has followed: the caller knows that no other is at work.
func (c *claims) forget() { c.own.Number, c.superseded = 0, false }
