// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"context"
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

// openProbes begins to send packets, if the kernel lets the agent. One that retires writes no
// status.
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
func (h *host) marked(from netip.Addr) (marked, seen bool) {
	probed, first := h.probes.of[interception.FamilyOf(from)], h.first()
	if h.probes.prober == nil || first == nil || time.Now().Before(probed.until) {
		return false, false
	}
	to, err := sourceTo(h.o.Host, from)
	if err == nil {
		mark := h.o.Numbers.Generation(first.Proxy.Generation).Outbound.Mark
		marked, err = h.probes.prober.Marked(from, to, mark)
	}
	if err != nil {
		if probed.until.IsZero() {
			h.o.WithoutProbes(err)
		}
		probed.until = time.Now().Add(probed.failures.Next(time.Now()))
		return false, false
	}
	probed.until = time.Time{}
	probed.failures.Reset()
	return marked, true
}

// probe returns an error if connections of an enrolled pod do not get the mark. It asks for one
// address of each family: rules of other programs rarely distinguish more. What a packet has shown
// is true until another one shows something else.
func (a *Agent) probe(ctx context.Context, e *entry) error {
	asked := map[interception.Family]bool{}
	for _, address := range a.host.members.kept(e.addresses()) {
		family := interception.FamilyOf(address)
		if asked[family] {
			continue
		}
		asked[family] = true
		marked, seen := a.host.marked(address)
		if seen && !marked && a.lookAgain(ctx) {
			marked, seen = a.host.marked(address)
		}
		if seen {
			e.unmarked[family] = !marked
		}
		if e.unmarked[family] {
			return fmt.Errorf("%w: a packet from %s passed the rules of the node and had no mark %s then: find the program whose rules change "+
				"that mark (nft list ruleset, iptables-save)", ErrMark, address, a.options.Numbers.Outbound.Mark)
		}
	}
	return nil
}

// fresh is for how long the host's rules count as they were last seen.
const fresh = time.Second

// lookAgain looks at the host's rules, unless it has just done that, and reports whether they are
// as planned now: another program may have removed them.
func (a *Agent) lookAgain(ctx context.Context) bool {
	if time.Since(a.host.probes.looked) < fresh {
		return false
	}
	err := a.keepHost(ctx)
	if ctx.Err() != nil {
		return false
	}
	a.report(err)
	return a.host.ready
}

// probeOne probes for one pod after the host was looked at, since other programs may have changed
// their rules. If its connections get no mark, all pods are looked at.
func (a *Agent) probeOne(ctx context.Context) {
	enabled := a.anyEnabled()
	if enabled == nil || a.probe(ctx, enabled) == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.entries {
		a.dueLocked(e)
	}
}

// anyEnabled returns a pod that is enabled and has members; nil if there is none.
func (a *Agent) anyEnabled() *entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, e := range a.entries {
		enabled := e.state.Wanted.Enrolled && e.state.Seen.Status == ambient.StatusEnabled && e.state.Err == nil
		if enabled && e.ended == nil && len(a.host.members.of(uid)) > 0 {
			return e
		}
	}
	return nil
}
