// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/markprobe"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// ErrMark is wrapped by the error about an enrolled pod whose connections do not get the mark by
// which they are led to the proxy, though its addresses are in the sets and the rules stand. Rules
// of another program are the cause.
var ErrMark = errors.New("connections of the pod do not get the mesh's mark")

// probes hold what the agent needs to probe the mark of connections. Only the agent's loop uses
// them.
type probes struct {
	prober *markprobe.Prober // nil if the kernel refuses it
	of     map[interception.Family]*probed
	looked time.Time // when the host's rules were last found, or made, to be as planned
}

// probed is what is known of a family.
type probed struct {
	failures upkeep.Series
	until    time.Time // when to send the next packet, after one that has shown nothing
}

// openProbes begins to send packets, if the kernel lets the agent. An agent that retires writes no
// status, and needs none.
func (a *Agent) openProbes() {
	p := &a.host.probes
	p.of = map[interception.Family]*probed{}
	for _, family := range families() {
		p.of[family] = &probed{failures: upkeep.Failures()}
	}
	if a.options.Retiring {
		return
	}
	var err error
	if p.prober, err = markprobe.Open(a.options.Host); err != nil {
		p.prober = nil
		a.options.WithoutProbes(err)
	}
}

func (p *probes) close() error {
	if p.prober == nil {
		return nil
	}
	return p.prober.Close()
}

// marked reports whether a packet from an address got the mark. If seen is false, no packet has
// shown that.
func (h *host) marked(from netip.Addr) (mark interception.MarkBits, marked, seen bool) {
	probed, first := h.probes.of[interception.FamilyOf(from)], h.first()
	if h.probes.prober == nil || first == nil || time.Now().Before(probed.until) {
		return mark, false, false
	}
	mark = h.o.Numbers.Generation(first.Proxy.Generation).Outbound.Mark
	to, err := sourceTo(h.o.Host, from)
	if err == nil {
		marked, err = h.probes.prober.Marked(from, to, mark)
	}
	if err != nil {
		if probed.until.IsZero() {
			h.o.WithoutProbes(err)
		}
		probed.until = time.Now().Add(probed.failures.Next(time.Now()))
		return mark, false, false
	}
	probed.until = time.Time{}
	probed.failures.Reset()
	return mark, marked, true
}

// doubt is what packets without the mark have shown of a pod's connections of a family.
type doubt struct {
	since     time.Time             // the first of them
	confirmed bool                  // by one after the host's rules were looked at
	mark      interception.MarkBits // what that one lacked
}

// errDoubt means that a packet was not marked. The agent looks at the host's rules next, because
// they may be gone.
var errDoubt = errors.New("connections of the pod may not get the mesh's mark: the agent looks at the rules of the node")

// probe returns an error if connections of an enrolled pod do not get the mark. It asks for one
// address of each family: rules of other programs rarely distinguish more. What a packet has
// confirmed is true until another one shows something else.
func (a *Agent) probe(e *entry) error {
	asked := map[interception.Family]netip.Addr{}
	for _, address := range a.host.members.kept(e.addresses()) {
		if family := interception.FamilyOf(address); !asked[family].IsValid() {
			asked[family] = address
			a.probeFrom(e, address)
		}
	}
	maps.DeleteFunc(e.doubts, func(family interception.Family, _ doubt) bool { return !asked[family].IsValid() })
	for family, doubt := range e.doubts {
		if doubt.confirmed {
			return fmt.Errorf("%w: a packet from %s passed the rules of the node and had no mark %s then: find the program whose rules "+
				"change that mark (nft list ruleset, iptables-save)", ErrMark, asked[family], doubt.mark)
		}
	}
	if len(e.doubts) > 0 {
		return errDoubt
	}
	return nil
}

// probeFrom sends a packet, and notes what it has shown. Another program is to blame only if the
// rules stood after the first packet that was not marked.
func (a *Agent) probeFrom(e *entry, address netip.Addr) {
	family := interception.FamilyOf(address)
	mark, marked, seen := a.host.marked(address)
	switch known, doubted := e.doubts[family]; {
	case seen && marked, !seen && !known.confirmed:
		delete(e.doubts, family)
	case seen && !doubted:
		e.doubts[family] = doubt{since: time.Now()}
		pause := calm // one look is for all pods
		if len(e.waiting) > 0 {
			pause = 0
		}
		a.mu.Lock()
		a.hostDueLocked(pause)
		a.mu.Unlock()
	case seen && a.host.probes.looked.After(known.since) && a.host.members.ownerOf(address) == e.uid:
		known.confirmed, known.mark = true, mark
		e.doubts[family] = known
	}
}

// wakeDoubted has the pods looked at again that have waited for a look at the host's rules.
func (a *Agent) wakeDoubted() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.entries {
		if errors.Is(e.state.Err, errDoubt) {
			a.dueLocked(e)
		}
	}
}

// probeOne probes for one pod after the host was looked at, since other programs may have changed
// their rules. If its connections get no mark any more, or get it again, all pods are looked at.
func (a *Agent) probeOne() {
	e := a.anyPod()
	if e == nil {
		return
	}
	before := len(e.doubts) > 0
	if is := a.probe(e) != nil; is == before {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.entries {
		a.dueLocked(e)
	}
}

// anyPod returns a pod that is enabled, or else one whose connections get no mark; nil if there is
// none.
func (a *Agent) anyPod() (unmarked *entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, e := range a.entries {
		switch {
		case !e.state.Wanted.Enrolled || e.ended != nil || len(a.host.members.of(uid)) == 0:
		case e.state.Err == nil && e.state.Seen.Status == ambient.StatusEnabled:
			return e
		case errors.Is(e.state.Err, ErrMark):
			unmarked = e
		}
	}
	return unmarked
}
