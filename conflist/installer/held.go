// SPDX-License-Identifier: Apache-2.0

package installer

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
	c.locked, c.sole = h.own != nil, h.sole
}

// follow updates what this daemon's session records of the lock after it has followed another.
func (c *claims) follow(stored session) {
	switch {
	case !c.locked:
		c.own.Lock = ""
	case c.own.Lock == lockSome, stored.mayLackLock() && !c.sole:
		c.own.Lock = lockSome
	default:
		c.own.Lock = lockAll
	}
}
