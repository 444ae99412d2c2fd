// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// thread is what some packets have become on their way: all those for which where holds.
type thread struct {
	state
	where ref
}

// state is a packet on its way, its fields in terms of the packet that it began as. States can be
// compared: packets in the same one go on as one thread.
type state struct {
	src, dst endpoint
	// sent is the source that the packet was sent from.
	sent endpoint
	mark mark
	// in and out are the links that rules see; "" where there is none, and any for all of them.
	in, out linkName
	owner   owner
	way     way
	flow    flow
	// taker is the socket that takes the packet, and listens says that it is a listener's.
	taker   int
	listens bool
	end     ending
	why     reasons
}

// linkName is short for what is used everywhere.
type linkName = interception.Interface

// anyLink stands for all links, which the variables in and out tell apart. No link has such a name.
const anyLink linkName = "*"

// owner is what rules can say about a packet's socket.
type owner uint8

const (
	noOwner owner = iota
	hasOwner
	mayHaveOwner // the variable owned says
)

// flow is what connection tracking made of the packet.
type flow struct {
	kind flowKind
	mark mark
	zone uint16
	// zoned and untracked are what raw said.
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

// way is where routing sends the packet: by a link, for the destination and the mark that it was
// asked about.
type way struct {
	link    linkName
	foreign bool
	// borrowed says so too, and that it is by a table of somebody's.
	borrowed bool
	dst      address
	mark     mark
}

// The takers that are no listeners, whose numbers are from 0 on.
const (
	nobody     = -1
	connection = -2 // the socket that has the connection already
)

// ending is what became of a packet; the zero value is that of one on its way.
type ending struct {
	verdict trace.Verdict
	cause   trace.Cause
	link    linkName
}

// reasons are the rules, by their numbers in the engine, that trace.Outcome.Decisive chooses from:
// 0 for none.
type reasons struct {
	last                   int // the one that ended the walk
	redirect, endNAT, ends int
	changed                int // the last one that changed the packet since a table began
}

// threads are some, of which no two have the same state. The zero value is empty.
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

// choice is a value with the packets for which it is the one.
type choice[V any] struct {
	value V
	where ref
}

// first takes of each choice the packets that no choice before has.
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
