// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// updateProbe is a probe that two plans capture, and the ports of the proxy that it may come to.
type updateProbe struct {
	Probe
	ports []uint16
}

// captured returns why the proxy did not get a probe that reached a socket, or did not learn its
// destination; "" if the proxy got it, and if no socket did.
func (p updateProbe) captured(o Observation) string {
	switch {
	case o.Verdict != Accepted:
		return ""
	case o.At != InPod || !slices.Contains(p.ports, o.Port):
		return fmt.Sprintf("%s is captured by both plans, for ports %d, and was %s", p, p.ports, o)
	case p.Protocol == TCP && o.OriginalDst != p.Dst && o.LocalAddr != p.Dst:
		return fmt.Sprintf("%s: the proxy cannot tell where it was to go: it was %s", p, o)
	}
	return ""
}

// probing sends probes during updates.
type probing struct {
	pod    *Pod
	probes []updateProbe
	cancel context.CancelFunc
	group  sync.WaitGroup

	ends *counts // how the probes end

	mu       sync.Mutex
	problems []string
}

// probers is the number of concurrent probes.
const probers = 4

// startProbing sends each of the probes repeatedly, until stop is called, and counts how they end.
func startProbing(t testing.TB, pod *Pod, probes []updateProbe, ends *counts) *probing {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &probing{pod: pod, probes: probes, cancel: cancel, ends: ends}
	for i := range probers {
		p.group.Go(func() {
			for at := i; ctx.Err() == nil; at += probers {
				p.send(t.Context(), probes[at%len(probes)])
			}
		})
	}
	return p
}

// round sends each probe once more, all at once.
func (p *probing) round(ctx context.Context) {
	var group sync.WaitGroup
	for _, probe := range p.probes {
		group.Go(func() { p.send(ctx, probe) })
	}
	group.Wait()
}

// send sends one probe. A probe that breaks on its way, because rules changed, has not reached a
// socket.
func (p *probing) send(ctx context.Context, probe updateProbe) {
	o, err := p.pod.Send(ctx, probe.Probe)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
		p.ends.add("broken")
		p.problems = append(p.problems, err.Error())
	case o.Verdict == Accepted && !o.Answered:
		p.ends.add("accepted without an answer")
	default:
		p.ends.add(o.Verdict.String())
	}
	if problem := probe.captured(o); problem != "" {
		p.problems = append(p.problems, problem)
	}
}

// stop waits for the probes that are on their way. It returns which bypassed the proxy, and the
// errors of those that failed.
func (p *probing) stop() []string {
	p.cancel()
	p.group.Wait()
	return p.problems
}
