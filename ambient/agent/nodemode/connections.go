// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"net/netip"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// connection is a TCP connection that is open, as the host's kernel tracks it.
type connection struct {
	from, to netip.Addr
	answers  netip.Addr // who answers: after a translation another one than to
	mark     interception.Mark
}

// hasConnection reports whether the host has a connection for which is holds.
func (h *host) hasConnection(family interception.Family, is func(connection) bool) (has bool, err error) {
	err = eachConnection(h.o.Host, family, func(c connection) { has = has || is(c) })
	return has, err
}

// isBusy reports whether a connection is open that the host captures. Those that the node itself
// answers have the mark, too, and no proxy carries them.
func (h *host) isBusy() (bool, error) {
	n := h.o.Numbers
	own, err := addressesOf(h.o.Host)
	if err != nil {
		return false, err
	}
	for _, family := range families() {
		has, err := h.hasConnection(family, func(c connection) bool {
			return (n.Outbound.Mark.Matches(c.mark) || n.Inbound.Mark.Matches(c.mark)) && !own[c.answers]
		})
		if has || err != nil {
			return has, err
		}
	}
	return false, nil
}

// drains reports whether the host's rules have to stay for captured connections, which have
// Options.DrainTimeout to end. An error does not keep the rules there for longer than that.
func (a *Agent) drains() (bool, error) {
	h := &a.host
	if h.draining.IsZero() {
		h.draining = time.Now()
	}
	left := a.options.DrainTimeout - time.Since(h.draining)
	if left <= 0 {
		return false, nil
	}
	busy, err := h.isBusy()
	if busy {
		a.mu.Lock()
		a.hostDueLocked(min(left, a.options.ListenerRound))
		a.mu.Unlock()
	}
	return busy, err
}
