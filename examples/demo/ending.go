// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// ending is how a connection ended, as package trace expects it or as the kernel made it. Endings
// that agree are equal.
type ending struct {
	// listener took the connection; "" if none did.
	listener string
	// original is the connection's first destination, as the listener learns it. It is not looked at
	// in ambient mode, where the listener is always the application.
	original netip.AddrPort
	// proxies are the ports at which the node's proxy took the connection, and client is the address
	// that the listener sees. Both are for ambient mode only.
	proxies string
	client  netip.Addr
	// failure is the connecting side's error if no listener answered.
	failure string
}

// The failures.
const (
	refused    = "refused"
	unroutable = "no route"
	unanswered = "no answer"
)

func listenerName(program string, port uint16) string { return fmt.Sprintf("%s:%d", program, port) }

// String returns text such as "proxy:15001, meant for 203.0.113.10:80", or in ambient mode "15001 →
// 15008 → stock:8080, from 10.244.1.3".
func (e ending) String() string {
	text := e.listener
	if e.failure != "" {
		text = e.failure
	}
	if e.proxies != "" {
		text = e.proxies + " → " + text
	}
	if e.original.IsValid() {
		text += fmt.Sprintf(", meant for %s", e.original)
	}
	if e.client.IsValid() {
		text += fmt.Sprintf(", from %s", e.client)
	}
	return text
}

// endingOf returns what the connecting side sees of an outcome. A packet that leaves the pod
// reaches the world, which listens.
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

// expectation is what package trace predicts for a connection.
type expectation struct {
	ending
	// rule decides, and why is its reason; "" if no rule does.
	rule interception.RuleID
	why  string
	// from is the part of the pod that made the rule.
	from []interception.Source
	// captured is true if a rule sends the connection to the proxy, which must then answer it.
	captured bool
}

// expectationOf finds the deciding rule in the outcome.
func expectationOf(o trace.Outcome) expectation {
	e := expectation{ending: endingOf(o)}
	e.decide(o)
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

// decide takes over the rule that decides in the outcome, if there is one.
func (e *expectation) decide(o trace.Outcome) {
	if step, ok := o.Decisive(); ok {
		e.rule, e.why, e.from = step.Rule.ID, step.Rule.Why, step.Rule.From
	}
}
