// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// forwarding is a pod with a machine at the link vm0.
func forwarding(plans ...*interception.Plan) trace.World {
	world := pod(plans...)
	n := &world.Namespaces[0]
	n.Forwards = true
	n.Links = append(n.Links, trace.Link{Name: "vm0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.2.1/24")}})
	return world
}

// fromMachine opens a connection from the machine to the outside.
func fromMachine(t *testing.T) trace.Packet {
	t.Helper()
	packet, err := trace.ParsePacket("tcp in vm0 10.0.2.2:40000 > 198.51.100.7:443")
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

// TestForward follows a connection through a namespace that forwards, and through one that does
// not.
func TestForward(t *testing.T) {
	t.Parallel()
	var outcome trace.Outcome
	for i, link := range []interception.Interface{"eth0", "vm0", "eth0", "vm0"} {
		packet := fromMachine(t)
		if i > 0 {
			packet = outcome.Answer(trace.Arrival{Link: outcome.Link})
		}
		outcome = traced(t, forwarding(), packet)
		if outcome.Verdict != trace.Sent || outcome.Link != link {
			t.Fatalf("packet %d: %s", i, outcome.Report())
		}
	}
	world := forwarding()
	world.Namespaces[0].Forwards = false
	if outcome := traced(t, world, fromMachine(t)); outcome.Verdict != trace.Unroutable || outcome.Cause != trace.NotLocal {
		t.Errorf("a namespace that does not forward: %s", outcome.Report())
	}
}

// TestForwardHooks has rules in the hooks that a forwarded packet passes, and in the others.
func TestForwardHooks(t *testing.T) {
	t.Parallel()
	for hook, want := range map[interception.Hook]trace.Verdict{
		interception.Prerouting: trace.Dropped, interception.Forward: trace.Dropped, interception.Postrouting: trace.Dropped,
		interception.Input: trace.Sent, interception.Output: trace.Sent,
	} {
		plan := build(t, func(b *interception.Builder) {
			c := b.Mangle("chain")
			c.Entry(hook, interception.Match{}, "why")
			c.Do("drop", interception.Match{}, interception.Drop{}, "why")
		})
		if outcome := traced(t, forwarding(plan), fromMachine(t)); outcome.Verdict != want {
			t.Errorf("%s: %s", hook, outcome.Report())
		}
	}
}

// TestDirection has rules on the direction of a connection that is forwarded, and of one that comes
// back by lo.
func TestDirection(t *testing.T) {
	t.Parallel()
	drops := func(hook interception.Hook, d interception.Direction) *interception.Plan {
		return build(t, func(b *interception.Builder) {
			c := b.Mangle("chain")
			c.Entry(hook, interception.Match{}, "why")
			c.Do("drop", interception.Match{Direction: d}, interception.Drop{}, "why")
		})
	}
	for name, c := range map[string]struct {
		packet trace.Packet
		answer trace.Origin
	}{
		"forwarded": {fromMachine(t), trace.Arrival{Link: "eth0"}},
		"local":     {connect(application, "127.0.0.1:8080"), ofApplication()},
	} {
		first := traced(t, forwarding(), c.packet)
		reply := traced(t, forwarding(), first.Answer(c.answer))
		next := first.Next()
		next.Flow = reply.Flow
		untracked := c.packet
		untracked.Flags = interception.FlagFIN // which connection tracking takes for invalid
		for _, p := range []struct {
			packet trace.Packet
			want   interception.Direction
		}{
			{c.packet, interception.DirectionOriginal},
			{first.Answer(c.answer), interception.DirectionReply},
			{next, interception.DirectionOriginal},
			{untracked, interception.AnyDirection},
		} {
			for _, d := range []interception.Direction{interception.DirectionOriginal, interception.DirectionReply} {
				outcome := traced(t, forwarding(drops(interception.Prerouting, d)), p.packet)
				if dropped := outcome.Verdict == trace.Dropped; dropped != (p.want == d) {
					t.Errorf("%s, %s, drop %s: %s", name, p.packet, d, outcome.Report())
				}
			}
		}
	}
}
