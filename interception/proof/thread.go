// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"net/netip"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// thread is the state of some packets on their way: of all those in where.
type thread struct {
	state
	where ref
}

// state is a packet on its way, its fields in terms of the packet's start. States are comparable:
// packets in the same state continue as one thread.
type state struct {
	src, dst endpoint
	// sent is the source that the packet was sent from.
	sent endpoint
	mark mark
	// in and out are the links that rules see; "" for no link, and any for all of them.
	in, out linkName
	owner   owner
	way     way
	flow    flow
	// taker is the socket that takes the packet; listens reports whether it is a listener's.
	taker   int
	listens bool
	end     ending
	why     reasons
}

type linkName = interception.Interface

// anyLink means all links, distinguished by the variables in and out. No link has this name.
const anyLink linkName = "*"

// owner is what rules see of a packet's socket.
type owner uint8

const (
	noOwner owner = iota
	hasOwner
	mayHaveOwner // by the variable owned
)

// flow is the result of connection tracking.
type flow struct {
	kind flowKind
	mark mark
	// zone is set for new flows only. For a known flow, the variable of the space has its zone in the
	// packet's direction.
	zone interception.SetZone
	// zoned and untracked are the results of raw.
	zoned, untracked       bool
	dstSettled, srcSettled bool
	confirmed              bool
}

type flowKind uint8

const (
	noFlow flowKind = iota
	knownFlow
	newFlow
)

// way is the result of routing: a link, for the destination and the mark of the lookup.
type way struct {
	link    linkName
	foreign bool
	// borrowed reports whether it is foreign by a plan's table.
	borrowed bool
	// source is the preferred source, or the zero Addr.
	source netip.Addr
	dst    address
	mark   mark
}

// The takers other than listeners, whose numbers start at 0.
const (
	nobody     = -1
	connection = -2 // the socket that has the connection already
)

// ending is the fate of a packet; zero while it is on its way.
type ending struct {
	verdict trace.Verdict
	cause   trace.Cause
	link    linkName
}

// reasons are the numbers of the rules that trace.Outcome.Decisive chooses from; 0 means no rule.
type reasons struct {
	last                   int // the rule that ended the walk
	redirect, endNAT, ends int
	changed                int // the last rule that changed the packet since a table began
}

// threads is a set of threads with distinct states. The zero value is empty.
type threads struct {
	list []thread
	at   map[state]int
}

func (q question) add(ts *threads, added ...thread) {
	for _, t := range added {
		if t.where == never {
			continue
		}
		if ts.at == nil {
			ts.at = map[state]int{}
		}
		at, there := ts.at[t.state]
		if !there {
			ts.at[t.state] = len(ts.list)
			ts.list = append(ts.list, t)
			continue
		}
		ts.list[at].where = q.or(ts.list[at].where, t.where)
	}
}

// split divides a thread by a condition.
func (q question) split(t thread, condition ref) (meets, rest thread) {
	meets, rest = t, t
	meets.where, rest.where = q.and(t.where, condition), q.without(t.where, condition)
	return meets, rest
}

// choice is a value with the packets that it applies to.
type choice[V any] struct {
	value V
	where ref
}

// first keeps of each choice the packets that no earlier choice has.
func first[V any](q question, choices []choice[V]) []choice[V] {
	var kept []choice[V]
	left := always
	for _, c := range choices {
		if where := q.and(left, c.where); where != never {
			kept = append(kept, choice[V]{c.value, where})
			left = q.without(left, c.where)
		}
	}
	return kept
}
