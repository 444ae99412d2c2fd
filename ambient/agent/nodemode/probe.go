// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"errors"
	"fmt"
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

// probes are what the agent needs to see by packets whether connections get the mark. The agent's
// loop alone uses it.
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

// marked reports whether a packet from an address got the mark. Seen is false if that is not known.
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

// probe returns an error if connections of an enrolled pod do not get the mark. It asks for one
// address of each family: rules of other programs rarely distinguish more. What a packet has shown
// is true until another one shows something else.
func (a *Agent) probe(e *entry) error {
	asked := map[interception.Family]bool{}
	for _, address := range a.host.members.kept(e.addresses()) {
		family := interception.FamilyOf(address)
		if asked[family] {
			continue
		}
		asked[family] = true
		mark, marked, seen := a.host.marked(address)
		switch {
		case seen && marked:
			delete(e.unmarked, family)
		case seen && e.unmarked[family].IsZero():
			e.unmarked[family] = time.Now()
			a.mu.Lock()
			a.hostDueLocked(0)
			a.mu.Unlock()
		}
		if err := a.judge(e, address, mark); err != nil {
			return err
		}
	}
	return nil
}

// errDoubt means that a packet was not marked, and that the host's rules have to be looked at: they
// may be gone.
var errDoubt = errors.New("connections of the pod may not get the mesh's mark: the agent looks at the rules of the node")

// judge says what the packets from a pod's address have shown. Another program is to blame only if
// the rules stood after the first packet that was not marked.
func (a *Agent) judge(e *entry, address netip.Addr, mark interception.MarkBits) error {
	since := e.unmarked[interception.FamilyOf(address)]
	switch {
	case since.IsZero():
		return nil
	case !a.host.probes.looked.After(since) || a.host.members.ownerOf(address) != e.uid:
		return errDoubt
	}
	return fmt.Errorf("%w: a packet from %s passed the rules of the node and had no mark %s then: find the program whose rules change "+
		"that mark (nft list ruleset, iptables-save)", ErrMark, address, mark)
}

// probeOne probes for one pod after the host was looked at, since other programs may have changed
// their rules. If its connections get no mark any more, or get it again, all pods are looked at.
func (a *Agent) probeOne() {
	e := a.anyPod()
	if e == nil {
		return
	}
	before := len(e.unmarked) > 0
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
