// SPDX-License-Identifier: Apache-2.0

package installer

// What a session says of the plugin's own lock file. A version that knows of no such file says
// nothing.
const (
	lockAll  = "all"  // every daemon of the plugin that may be running has locked it
	lockSome = "some" // this one has, and one that it has followed, of a version that doesn't, may be running still
)

// mayLackLock says whether a daemon may be running that hasn't locked the plugin's own file.
func (s session) mayLackLock() bool { return s.Lock == lockSome || s.Lock == "" && s.ID != "" }

// mayLackLock says so of the sessions that the claim on disk knows of. One that can't be read
// might.
func (c *claims) mayLackLock() bool {
	current, err := c.load()
	return !isMissing(err) && (err != nil || current.Session.mayLackLock())
}

// attend notes what the daemon of these claims has locked.
func (c *claims) attend(h *hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.locked, c.sole = h.own != nil, h.sole
}

// follow has this daemon's session say what is known of the lock, where it follows another.
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
