// SPDX-License-Identifier: Apache-2.0

package goldencases

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/proof"
	"github.com/meshcni/meshcni/interception/trace"
)

// The results for a packet that should show a difference.
const (
	bySockets      = "confirmed by sockets"
	byHooks        = "confirmed in the hooks"
	byConversation = "confirmed in the hooks, by a whole connection"
	byFlow         = "confirmed in the hooks, of a flow that was there before"
	alike          = "seen alike, as the traces say"
	unsendable     = "shown by a packet that cannot be sent"
	unmet          = "shown by a packet of a flow that no packets leave"
	failed         = "a failure"
)

// confirmation makes the kernel show that a packet ends differently in pods with either plan.
type confirmation struct {
	refutation

	found proof.Comparison
	plans [2]*interception.Plan
	how   string
}

func (c confirmation) confirm() string {
	if c.plain() {
		if what := c.bySockets(); what != alike {
			return what
		}
	}
	if c.found.Packet.Flow == nil {
		return c.byHooks(byHooks)
	}
	opening := c.found.Packet
	opening.Flow, opening.Flags, opening.Src = nil, 0, netip.AddrPortFrom(opening.Src.Addr(), 0)
	for _, packet := range append([]trace.Packet{opening}, c.Packets...) {
		if what := c.byConversation(packet); what != alike {
			return what
		}
	}
	return c.byHooks(byFlow)
}

// anyPort is package proof's default source port.
const anyPort = 40000

// plain reports whether a socket of the harness can send the packet and see its end: such a socket
// chooses its own port, and a refusal over UDP may be lost.
func (c confirmation) plain() bool {
	p := c.found.Packet
	refused := c.found.Outcomes[0].Verdict == trace.Refused || c.found.Outcomes[1].Verdict == trace.Refused
	return p.Flags == 0 && p.Flow == nil && slices.Contains([]uint16{0, anyPort, trace.EphemeralPort}, p.Src.Port()) &&
		!(refused && p.Protocol == interception.ProtocolUDP)
}

// bySockets compares what sockets see of the packet, if they see anything.
func (c confirmation) bySockets() string {
	var observed [2]dataplanetest.Observation
	for i, pod := range []*dataplanetest.Pod{c.pod, c.podWith(c.plans[1])} {
		compared, err := pod.Compare(c.Context(), c.found.Worlds[i], c.found.Packet)
		switch {
		case errors.Is(err, dataplanetest.ErrNeedsSecondUID):
			c.Skip(err)
		case errors.Is(err, dataplanetest.ErrProbe), errors.Is(err, trace.ErrPacket):
			return alike
		case err != nil:
			c.Fatalf("%s: %s: %v", c.how, c.found.Packet, err)
		case compared.Disagreement != "":
			c.Errorf("%s: %s", c.how, compared.Report())
			return failed
		}
		observed[i] = compared.Observed
	}
	if different(observed[0], observed[1]) {
		return bySockets
	}
	return alike
}

// different reports whether two observations of one packet differ in more than the values that are
// unique to a connection.
func different(a, b dataplanetest.Observation) bool {
	return a.Verdict != b.Verdict || a.At != b.At || a.Port != b.Port || a.LocalAddr != b.LocalAddr ||
		a.OriginalDst != b.OriginalDst || a.Peer.Addr() != b.Peer.Addr() || a.Answered != b.Answered
}

// byHooks compares what comes through the last hooks of the packet alone, or what connection
// tracking knows afterwards.
func (c confirmation) byHooks(confirmed string) string {
	var ends [2]alone
	for i, plan := range c.plans {
		var problem string
		switch ends[i], problem = c.alone(plan, c.found.Outcomes[i]); {
		case problem == unmet || problem == unsendable:
			return problem
		case problem != "":
			c.Errorf("%s: %s\n%s", c.how, problem, c.found.Outcomes[i].Report())
			return failed
		}
	}
	if shows([2][]passing{ends[0].want, ends[1].want}, [2][]passing{ends[0].seen, ends[1].seen}) || ends[0].answered != ends[1].answered {
		return confirmed
	}
	return alike
}

// alone is the fate of a single packet.
type alone struct {
	want, seen []passing
	// answered reports whether the flow of a packet that does not come through is answered; for
	// other packets, an answer may have come meanwhile.
	answered bool
}

// alone sends the packet into a pod of its own, and returns the differences from the trace.
func (c confirmation) alone(plan *interception.Plan, outcome trace.Outcome) (end alone, problem string) {
	pod, packet := dataplanetest.NewPod(c.T, c.Pod), c.found.Packet
	if packet.Flow != nil {
		if err := c.leave(c.Context(), pod, packet); errors.Is(err, errFlow) {
			return end, unmet
		} else if err != nil {
			c.Fatal(err)
		}
		packet.Flow = nil // the pod has it
	}
	if err := pod.Apply(c.Context(), c.dataplane, plan); err != nil {
		c.Fatal(err)
	}
	recorder := c.recorder(pod)
	src, err := pod.Inject(packet)
	var code syscall.Errno
	switch {
	case errors.Is(err, dataplanetest.ErrNeedsSecondUID):
		c.Skip(err)
	case errors.Is(err, dataplanetest.ErrProbe):
		return end, unsendable
	case errors.As(err, &code) && outcome.Verdict == trace.Unroutable && len(outcome.Path) == 0:
		return end, ""
	case err != nil || src != outcome.Packet.Src:
		return end, fmt.Sprintf("it goes from %s: %v", src, err)
	}
	return c.comes(recorder, src, outcome)
}

// comes returns what comes through of a packet that was sent, and the differences from the trace.
func (c confirmation) comes(recorder recorder, src netip.AddrPort, outcome trace.Outcome) (end alone, problem string) {
	opens := c.found.Packet.Flags == 0 // else the socket of the connection is missing
	if last, comes := lastOf(outcome); comes {
		last.transparent = last.transparent && opens
		end.want = []passing{last}
	}
	var err error
	end.seen, err = recorder.settled(c.Context(), func(p *passing) bool {
		p.transparent = p.transparent && opens
		return p.header.Src == src
	})
	switch {
	case err != nil:
		c.Fatal(err)
	case !all(end.seen, end.want) || len(end.want) == 0 && len(end.seen) > 0:
		return end, fmt.Sprintf("the kernel has it come through as %+v", end.seen)
	case c.found.Packet.Flow == nil || len(end.want) > 0:
		return end, ""
	}
	if end.answered, err = recorder.answered(*outcome.Flow); err != nil || end.answered != outcome.Flow.Answered {
		return end, fmt.Sprintf("the kernel has its flow answered: %t, %v", end.answered, err)
	}
	return end, ""
}

// byConversation compares what comes through the last hooks of a connection that begins with the
// packet.
func (c confirmation) byConversation(packet trace.Packet) string {
	var want, seen [2][]passing
	for i, plan := range c.plans {
		pod := c.podWith(plan)
		recorder := c.recorder(pod)
		compared, err := pod.Compare(c.Context(), c.found.Worlds[i], packet)
		switch {
		case errors.Is(err, dataplanetest.ErrProbe), errors.Is(err, trace.ErrPacket):
			return alike
		case err != nil:
			c.Fatalf("%s: %s: %v", c.how, packet, err)
		case compared.Disagreement != "":
			c.Errorf("%s: %s", c.how, compared.Report())
			return failed
		}
		for _, outcome := range compared.Expected {
			if last, comes := lastOf(outcome); comes {
				want[i] = append(want[i], last.anyPorts())
			}
		}
		if seen[i], err = recorder.settled(c.Context(), func(p *passing) bool {
			*p = p.anyPorts()
			return true
		}); err != nil {
			c.Fatal(err)
		}
		if !all(seen[i], want[i]) {
			c.Errorf("%s: the kernel has it come through as %+v\n%s", c.how, seen[i], compared.Report())
			return failed
		}
	}
	if shows(want, seen) {
		return byConversation
	}
	return alike
}

// shows reports whether one pod has a packet that the other lacks.
func shows(want, seen [2][]passing) bool { return !all(seen[1], want[0]) || !all(seen[0], want[1]) }

// all reports whether all wanted packets were seen.
func all(there, wanted []passing) bool {
	return !slices.ContainsFunc(wanted, func(p passing) bool { return !slices.Contains(there, p) })
}

// lastOf returns the packet in its last hook, if it comes through.
func lastOf(o trace.Outcome) (passing, bool) {
	// Without a listener, it is not transparent.
	p := passing{protocol: o.Packet.Protocol, header: o.Header, transparent: o.Listener.Transparent}
	switch o.Verdict {
	case trace.Sent:
		p.hook = toLink
	case trace.Delivered, trace.Refused:
		p.hook = toSocket
	case trace.Dropped, trace.Rejected, trace.Unroutable, trace.Unknown:
		return p, false
	}
	if f := o.Flow; f != nil && !f.Untracked {
		p.tracked, p.zone, p.connmark = true, f.Zone, f.Mark
	}
	return p, true
}

// anyPorts sets ports that the kernel chose to 0, and ignores sockets.
func (p passing) anyPorts() passing {
	p.transparent = false
	for _, end := range []*netip.AddrPort{&p.header.Src, &p.header.Dst} {
		if end.Port() >= 20000 {
			*end = netip.AddrPortFrom(end.Addr(), 0)
		}
	}
	return p
}

// recorder returns a recorder in the pod.
func (c confirmation) recorder(pod *dataplanetest.Pod) recorder {
	r, err := newRecorder(c.Context(), pod)
	if err != nil {
		c.Fatal(err)
	}
	return r
}

// settled returns the selected packets that have come through, once none is on its way.
func (r recorder) settled(ctx context.Context, about func(*passing) bool) ([]passing, error) {
	if err := r.pod.Settle(ctx); err != nil {
		return nil, err
	}
	seen, err := r.seen(ctx)
	if err != nil {
		return nil, err
	}
	kept := seen[:0]
	for _, p := range seen {
		if about(&p) {
			kept = append(kept, p)
		}
	}
	return kept, nil
}
