// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// ending is how a connection ended, as package trace expects it and as the kernel made it: two endings that agree are equal.
type ending struct {
	// listener is who took the connection; "" when nobody did.
	listener string
	// original is the destination that the connection had at its start, as the listener learns it.
	original netip.AddrPort
	// failure says what the connecting side met instead of a listener.
	failure string
}

// The failures.
const (
	refused    = "refused"
	unroutable = "no route"
	unanswered = "no answer"
)

// listenerName names the socket of a program on a port.
func listenerName(program string, port uint16) string { return fmt.Sprintf("%s:%d", program, port) }

// String is "proxy:15001, meant for 203.0.113.10:80".
func (e ending) String() string {
	if e.failure != "" {
		return e.failure
	}
	if !e.original.IsValid() {
		return e.listener
	}
	return fmt.Sprintf("%s, meant for %s", e.listener, e.original)
}

// endingOf is what the connecting side sees of an outcome. What leaves the pod comes to the world, which listens there.
func endingOf(o trace.Outcome) ending {
	switch o.Verdict {
	case trace.Delivered:
		return ending{listener: o.Listener.Name, original: o.OriginalDst}
	case trace.Sent:
		return ending{listener: listenerName(world, o.Header.Dst.Port()), original: o.Header.Dst}
	case trace.Refused, trace.Rejected:
		return ending{failure: refused}
	case trace.Unroutable:
		if _, atSocket := o.Packet.From.(trace.Socket); atSocket && o.Cause == trace.NoRoute {
			return ending{failure: unroutable}
		}
		return ending{failure: unanswered}
	case trace.Dropped:
		return ending{failure: unanswered}
	case trace.Unknown:
	}
	return ending{failure: o.Verdict.String()}
}

// expectation is what package trace says about a connection.
type expectation struct {
	ending
	// rule decides, and why says why it is there; "" when no rule does.
	rule interception.RuleID
	why  string
	// from is what in the pod made the rule.
	from []interception.Source
	// captured says that a rule sends the connection to the proxy. It has to be answered then.
	captured bool
}

// expectationOf takes the rule that decides from the outcome.
func expectationOf(o trace.Outcome) expectation {
	e := expectation{ending: endingOf(o)}
	if step, ok := o.Decisive(); ok {
		e.rule, e.why, e.from = step.Rule.ID, step.Rule.Why, step.Rule.From
	}
	e.captured = slices.ContainsFunc(o.Path, func(s trace.Step) bool {
		switch s.Rule.Action.(type) {
		case interception.RedirectTo, interception.TProxyTo:
			return true
		default:
			return false
		}
	})
	return e
}
