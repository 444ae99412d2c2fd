// SPDX-License-Identifier: Apache-2.0

package podsource

import "sync/atomic"

// AgentConnection keeps a connection to a node agent open between the calls of an [Agent], so that
// a program that asks and then reports connects once. If the agent has closed it meanwhile, the
// next call connects anew. The zero AgentConnection keeps none yet. It is safe for concurrent use
// by Agents of one run directory; calls at the same time have a connection each, of which one is
// kept.
type AgentConnection struct{ idle atomic.Pointer[wire] }

// Close closes the connection if one is kept.
func (c *AgentConnection) Close() error {
	if w := c.take(); w != nil {
		return w.Close()
	}
	return nil
}

// take returns nil if no connection is kept.
func (c *AgentConnection) take() *wire {
	if c == nil {
		return nil
	}
	return c.idle.Swap(nil)
}

// keep reports whether the connection is kept; otherwise the caller still owns it.
func (c *AgentConnection) keep(w *wire) bool { return c != nil && c.idle.CompareAndSwap(nil, w) }
