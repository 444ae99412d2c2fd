// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// disagreement compares the fate of the first packet, and then of the connection.
func (c Comparison) disagreement(world trace.World) string {
	first := c.Expected[0]
	answered := !hearsNothing(world, c.Expected)
	tcp := first.Packet.Protocol == interception.ProtocolTCP
	discarded := first.Verdict == trace.Sent && silenced(world, first)
	switch {
	case !arrives(first):
		return c.failureDisagreement(world)
	case (tcp || discarded) && !answered:
		if c.Observed.Verdict != Dropped {
			return "its opening or the answer should be lost"
		}
		return ""
	case tcp && c.stopsHalfWay():
		return "the trace has a connection that stops half-way, which is not compared"
	case c.Observed.Answered != answered:
		return fmt.Sprintf("whether its answer comes back should be %t", answered)
	default:
		return arrivalDisagreement(first, c.Observed, tracks(world, first.Packet.Dst.Addr()))
	}
}

// stopsHalfWay reports whether the packets after the opening and its answer end differently.
func (c Comparison) stopsHalfWay() bool {
	return len(c.Expected) != 4 || c.Expected[2].Verdict != c.Expected[0].Verdict || !returns(c.Expected[2], c.Expected[3])
}

// failureDisagreement compares the fate of a packet that does not arrive.
func (c Comparison) failureDisagreement(world trace.World) string {
	silent := c.Observed.Verdict == Dropped
	refused := c.Observed.Verdict == Refused && errors.Is(c.Observed.Err, syscall.ECONNREFUSED)
	reported := c.Observed.Verdict == Refused && !refused
	first, wrong := c.Expected[0], ""
	switch hopeless := hearsNothing(world, c.Expected); {
	case first.Verdict == trace.Delivered, first.Verdict == trace.Sent, first.Verdict == trace.Unknown:
		return "the trace doesn't know"
	case first.Verdict == trace.Unroutable && !hopeless && !reported:
		wrong = "its sender should be told that it can't be routed"
	case first.Verdict != trace.Unroutable && !hopeless && !refused:
		wrong = "it should be refused"
	case hopeless && !silent:
		wrong = "it should be dropped, or its reset be lost"
	}
	return wrong
}

// arrivalDisagreement compares where a packet arrived. Without connection tracking, no listener
// learns an original destination.
func arrivalDisagreement(expected trace.Outcome, observed Observation, tracked bool) string {
	place := InPod
	if expected.Verdict == trace.Sent {
		place = Elsewhere
	}
	switch {
	case observed.Verdict != Accepted || observed.At != place:
		return fmt.Sprintf("it should arrive in %s", place)
	case observed.LocalAddr != expectedLocal(expected):
		return fmt.Sprintf("it should arrive at %s", expectedLocal(expected))
	case observed.Peer.Addr() != expected.Header.Src.Addr():
		return fmt.Sprintf("it should come from %s", expected.Header.Src.Addr())
	case place == Elsewhere:
		return ""
	case observed.Port != uint16(expected.Listener.Port):
		return fmt.Sprintf("it should arrive at the listener on port %d", expected.Listener.Port)
	}
	if learns := findable(expected) && (tracked || observed.OriginalDst.IsValid()); !learns || observed.OriginalDst == expected.OriginalDst {
		return ""
	}
	return fmt.Sprintf("the listener should learn the original destination %s", expected.OriginalDst)
}

// findable reports whether the kernel finds a flow for a request for the original destination.
func findable(o trace.Outcome) bool {
	if o.Packet.Protocol != interception.ProtocolTCP || o.Flow == nil || o.Flow.Untracked {
		return false
	}
	zone := interception.SetZone{Zone: o.Flow.Zone, Direction: o.Flow.ZoneDirection}
	return zone.For(interception.DirectionReply) == 0 // of what the listener sends
}

// expectedLocal is the local address that the accepting socket reports. For a datagram, the harness
// knows only the port of the listener.
func expectedLocal(expected trace.Outcome) netip.AddrPort {
	if expected.Verdict == trace.Delivered && expected.Packet.Protocol == interception.ProtocolUDP {
		return netip.AddrPortFrom(expected.Header.Dst.Addr(), uint16(expected.Listener.Port))
	}
	return expected.Header.Dst
}

// tracks reports whether the world's plans need connection tracking for the address's family: only
// then does the kernel start it, and some dataplanes need it for one family.
func tracks(world trace.World, to netip.Addr) bool {
	for _, plan := range world.Namespaces[0].Plans {
		for table := range plan.Tables() {
			asked := slices.ContainsFunc(table.Entries, func(e interception.Entry) bool { return e.Match.EffectiveFamily().Covers(to) })
			for _, chain := range table.Chains {
				if asked && slices.ContainsFunc(chain.Rules, func(r interception.Rule) bool { return wantsTracking(r, to) }) {
					return true
				}
			}
		}
	}
	return false
}

func wantsTracking(rule interception.Rule, to netip.Addr) bool {
	if !rule.Match.EffectiveFamily().Covers(to) {
		return false
	}
	switch rule.Action.(type) {
	case interception.RedirectTo, interception.DNATTo, interception.SNATTo, interception.SaveMark, interception.RestoreMark,
		interception.SetConnMark, interception.SetZone, interception.NoTrack:
		return true
	default:
		return rule.Match.State.Present() || rule.Match.ConnMark.Present() || rule.Match.Direction != interception.AnyDirection
	}
}
