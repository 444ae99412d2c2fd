// SPDX-License-Identifier: Apache-2.0

package health

import (
	"net"
	"slices"
	"sync"
)

// mostConnections is how many connections a port has at once: room for the kubelet, several Prometheus and a few
// people, in about a megabyte.
const mostConnections = 32

// crowd is a listener that has so many connections open at once, and no more. A new one is always accepted, and the
// oldest is closed for it: whoever opens connections and leaves them loses them, and the kubelet's probe, which takes a
// moment, is answered.
type crowd struct {
	net.Listener
	most int
	mu   sync.Mutex
	open []*member // the oldest first
}

// Accept waits for the next connection.
func (c *crowd) Accept() (net.Conn, error) {
	connection, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	m := &member{Conn: connection, of: c}
	if oldest := c.join(m); oldest != nil {
		_ = oldest.Conn.Close() // the server finds it closed, and calls member.Close
	}
	return m, nil
}

// join adds a connection, and returns the one that has to go for it.
func (c *crowd) join(m *member) (oldest *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) >= c.most {
		oldest = c.open[0]
		c.open = slices.Delete(c.open, 0, 1)
	}
	c.open = append(c.open, m)
	return oldest
}

func (c *crowd) leave(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = slices.DeleteFunc(c.open, func(other *member) bool { return other == m })
}

// member is one connection of a crowd.
type member struct {
	net.Conn
	of *crowd
}

// Close closes the connection, and makes room.
func (m *member) Close() error {
	m.of.leave(m)
	return m.Conn.Close()
}
