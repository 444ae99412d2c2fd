// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// CompareLiving makes both sides of a connection speak, the given one first, and compares the
// results with package trace, for a connection that is older than the world's plans, and silent
// since they were applied. In Comparison.Observed, only the verdict is set: Accepted if the
// connection lives.
func (p *Pod) CompareLiving(ctx context.Context, world trace.World, c *Connection, first Side) (Comparison, error) {
	expected, err := p.words(world, c, first)
	if err != nil {
		return Comparison{}, fmt.Errorf("compare connection: %w", err)
	}
	arrived := arrives(expected[0])
	lives := arrived && returns(expected[0], expected[1])
	reset := resets(expected)
	heard, err := c.say(ctx, first, c.silenceWhen(!arrived && !reset))
	if err != nil {
		return Comparison{}, err
	}
	answered := heard
	if heard == Accepted {
		if answered, err = c.say(ctx, 1-first, c.silenceWhen(!lives)); err != nil {
			return Comparison{}, err
		}
	}
	result := Comparison{Probe: c.Probe, Expected: expected, Observed: Observation{Verdict: answered}}
	switch {
	case arrived != (heard == Accepted):
		result.Disagreement = fmt.Sprintf("the %s's word should be heard: %t; it was %s", first, arrived, heard)
	case arrived && lives != (answered == Accepted):
		result.Disagreement = fmt.Sprintf("the answer to the %s should be heard: %t; it was %s", first, lives, answered)
	case expected[0].Verdict == trace.Refused && reset != (heard == Refused):
		result.Disagreement = fmt.Sprintf("the %s's connection should be reset, the reset returning: %t; it was %s", first, reset, heard)
	}
	return result, nil
}

// resets reports whether one side's data is answered by a reset, which takes the kernel a moment.
func resets(expected []trace.Outcome) bool {
	return expected[0].Verdict == trace.Refused && returns(expected[0], expected[1])
}

// silenceWhen returns how long to wait for silence: the kernel can confirm an expected silence at
// once.
func (c *Connection) silenceWhen(expected bool) time.Duration {
	if expected {
		return 0
	}
	return c.silence
}

// words returns the traces of one side's data and, if it arrives or is refused, of the response.
func (p *Pod) words(world trace.World, c *Connection, first Side) ([]trace.Outcome, error) {
	word := p.word(c, first)
	said, err := trace.Trace(world, word)
	if err != nil {
		return nil, err
	}
	var back trace.Packet
	switch said.Verdict {
	case trace.Refused:
		back = said.Answer(trace.Socket{UID: noOwner, GID: noOwner, Transparent: true})
		back.Flags = interception.FlagRST
	case trace.Delivered:
		back = said.Answer(p.word(c, 1-first).From)
	case trace.Sent:
		back = said.Answer(trace.Arrival{Link: said.Link})
	case trace.Dropped, trace.Unroutable, trace.Rejected, trace.Unknown:
		return []trace.Outcome{said}, nil
	}
	answer, err := trace.Trace(world, back)
	return []trace.Outcome{said, answer}, err
}

// word returns the packet that one side of a connection sends.
func (p *Pod) word(c *Connection, from Side) trace.Packet {
	local, remote := c.Local, netip.AddrPortFrom(c.Probe.Dst.Addr(), c.Probe.Dst.Port())
	place, whose := c.Probe.From, trace.Socket{UID: interception.UID(c.Probe.UID), GID: interception.GID(c.Probe.GID)}
	whose.Mark, whose.Transparent = interception.Mark(c.Probe.Mark), c.Probe.Transparent
	if from == Taker {
		local, remote = remote, local
		place, whose = c.Observation.At, p.owner(c.Observation.Port)
	}
	word := trace.Packet{From: whose, Protocol: interception.ProtocolTCP, Flags: interception.FlagACK, Src: local, Dst: remote}
	switch place {
	case Elsewhere:
		word.From = trace.Arrival{Link: eth0}
	case InMachine:
		word.From = trace.Arrival{Link: interception.Interface(p.options.MachineLink)}
	case InPod:
	}
	return word
}
