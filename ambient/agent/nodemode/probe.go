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
// of another program are the cause: they change marks, or keep connections from being tracked.
var ErrMark = errors.New("connections of the pod do not get the mesh's mark")

// probes are what the agent needs to see by packets whether connections get the mark. The agent's
// loop alone uses it.
type probes struct {
	prober *markprobe.Prober // nil if the kernel refuses it
	of     map[interception.Family]*probed
}

// probed is what is known of a family.
type probed struct {
	to       netip.Addr // of the host; none if it has none
	failures upkeep.Series
	until    time.Time // when to send the next packet; the last one did not come back
}

// openProbes begins to send packets, if the kernel lets the agent.
func (a *Agent) openProbes() {
	p := &a.host.probes
	p.of = map[interception.Family]*probed{}
	for _, family := range families() {
		p.of[family] = &probed{failures: upkeep.Failures()}
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

// aim has packets sent to these addresses of the host.
func (p *probes) aim(own map[netip.Addr]bool) {
	for family, probed := range p.of {
		probed.to = netip.Addr{}
		for address := range own {
			if interception.FamilyOf(address) == family && address.IsGlobalUnicast() && (!probed.to.IsValid() || address.Less(probed.to)) {
				probed.to = address
			}
		}
	}
}

// isUnmarked reports whether a packet from an address was seen without the mark.
func (h *host) isUnmarked(from netip.Addr) bool {
	probed := h.probes.of[interception.FamilyOf(from)]
	if h.probes.prober == nil || !probed.to.IsValid() || time.Now().Before(probed.until) {
		return false
	}
	marked, err := h.probes.prober.Marked(from, probed.to, h.o.Numbers.Outbound.Mark)
	if err != nil {
		if probed.until.IsZero() {
			h.o.WithoutProbes(err)
		}
		probed.until = time.Now().Add(probed.failures.Next(time.Now()))
		return false
	}
	probed.until = time.Time{}
	probed.failures.Reset()
	return !marked
}

// probe returns an error if connections of an enrolled pod do not get the mark. It asks for one
// address of each family: rules of other programs rarely distinguish more.
func (a *Agent) probe(e *entry) error {
	asked := map[interception.Family]bool{}
	for _, address := range a.host.members.kept(e.addresses()) {
		if family := interception.FamilyOf(address); asked[family] {
			continue
		}
		asked[interception.FamilyOf(address)] = true
		if a.host.isUnmarked(address) {
			return fmt.Errorf("%w: a packet from %s passed the rules of the node and had no mark %s then: find the program whose rules "+
				"change marks, or keep what comes by lo from being tracked (nft list ruleset)", ErrMark, address, a.options.Numbers.Outbound.Mark)
		}
	}
	return nil
}

// probeOne probes for one pod after the host was looked at, since other programs may have changed
// their rules. If its connections get no mark, all pods are looked at.
func (a *Agent) probeOne() {
	a.mu.Lock()
	var enabled *entry
	for _, e := range a.entries {
		if e.state.Wanted.Enrolled && e.state.Seen.Status == ambient.StatusEnabled && e.state.Err == nil {
			enabled = e
			break
		}
	}
	a.mu.Unlock()
	if enabled == nil || a.probe(enabled) == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.entries {
		a.dueLocked(e)
	}
}
