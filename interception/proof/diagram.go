// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"math"
)

// ref is a function of variables: the number of a node in a [diagram]. Equal functions have equal
// numbers.
type ref int32

// The constant functions.
const (
	never  ref = 0
	always ref = 1
)

// node tests a variable: low is the rest of the function where it is 0, high where it is 1.
type node struct {
	level     int32
	low, high ref
}

// diagram holds functions of variables as reduced, ordered binary decision diagrams that share
// their nodes (R. E. Bryant, "Graph-Based Algorithms for Boolean Function Manipulation", 1986). A
// variable is its level; lower levels are tested first.
//
// A diagram that would need more nodes than its limit has an error; its later results mean nothing.
//
// A diagram belongs to one goroutine. Functions that follow its nodes are hidden from the race
// detector, which would make tests take seven times as long. Functions that add nodes are not, so
// that the detector reports a second goroutine.
type diagram struct {
	nodes []node
	// unique finds a node by its contents: a hash table with open addressing, in which 0 is a free
	// place.
	unique []ref
	// answers caches the results of ite, each at the hash of its question.
	answers []answered
	limit   int
	err     error
}

type answered struct{ f, g, h, result ref }

const leaf = math.MaxInt32

func newDiagram(limit int) *diagram {
	return &diagram{
		nodes: []node{{level: leaf}, {level: leaf}}, unique: make([]ref, 1<<12), answers: make([]answered, 1<<12), limit: limit,
	}
}

//go:norace
func hash(a, b, c int32) uint64 {
	h := uint64(uint32(a))*0x9e3779b97f4a7c15 ^ uint64(uint32(b))*0xc2b2ae3d27d4eb4f ^ uint64(uint32(c))*0x165667b19e3779f9
	return h ^ h>>29
}

// node is the function that is low where the variable is 0 and high where it is 1. Both must test
// later variables only.
//
//go:norace
func (d *diagram) node(level int32, low, high ref) ref {
	if low == high {
		return low
	}
	mask := uint64(len(d.unique) - 1)
	at := hash(level, int32(low), int32(high)) & mask
	for ; d.unique[at] != 0; at = (at + 1) & mask {
		if d.nodes[d.unique[at]] == (node{level, low, high}) {
			return d.unique[at]
		}
	}
	return d.add(node{level, low, high}, at)
}

// add adds a node at a place of the table.
func (d *diagram) add(n node, at uint64) ref {
	if len(d.nodes) >= d.limit {
		if d.err == nil {
			d.err = fmt.Errorf("%w: more than %d nodes: ask about fewer rules at once, or raise Options.MaxNodes", ErrTooLarge, d.limit)
		}
		return never
	}
	made := ref(len(d.nodes))
	d.nodes = append(d.nodes, n)
	d.unique[at] = made
	if 2*len(d.nodes) > len(d.unique) {
		d.grow()
	}
	return made
}

// grow doubles the tables.
//
//go:norace
func (d *diagram) grow() {
	d.unique = make([]ref, 2*len(d.unique))
	mask := uint64(len(d.unique) - 1)
	for i, n := range d.nodes[2:] {
		at := hash(n.level, int32(n.low), int32(n.high)) & mask
		for d.unique[at] != 0 {
			at = (at + 1) & mask
		}
		d.unique[at] = ref(i + 2)
	}
	known := d.answers
	d.answers = make([]answered, len(d.unique))
	// Keys that differ in the smaller table differ in the larger one, so no two share a place.
	for _, a := range known {
		if a != (answered{}) {
			d.answers[d.place(a.f, a.g, a.h)] = a
		}
	}
}

// variable returns the function that is the variable.
func (d *diagram) variable(level int32) ref { return d.node(level, never, always) }

// ite returns g where f holds, and h elsewhere.
//
//go:norace
func (d *diagram) ite(f, g, h ref) ref {
	f, g, h = normalised(f, g, h)
	switch {
	case f == always || g == h:
		return g
	case f == never:
		return h
	case g == always && h == never:
		return f
	case d.err != nil:
		return never
	}
	// The zero answer belongs to a question that is never put here.
	if a := d.answers[d.place(f, g, h)]; a.f == f && a.g == g && a.h == h {
		return a.result
	}
	level := min(d.nodes[f].level, d.nodes[g].level, d.nodes[h].level)
	low := d.ite(d.branch(f, level, false), d.branch(g, level, false), d.branch(h, level, false))
	high := d.ite(d.branch(f, level, true), d.branch(g, level, true), d.branch(h, level, true))
	result := d.node(level, low, high)
	if d.err == nil {
		// Not at the earlier place: the table may have grown.
		d.answers[d.place(f, g, h)] = answered{f, g, h, result}
	}
	return result
}

// place returns the place of a question's answer.
//
//go:norace
func (d *diagram) place(f, g, h ref) uint64 {
	return hash(int32(f), int32(g), int32(h)) & uint64(len(d.answers)-1)
}

// normalised returns the canonical form of a question.
//
//go:norace
func normalised(f, g, h ref) (ref, ref, ref) {
	if f == g {
		g = always
	}
	if f == h {
		h = never
	}
	if h == never && f > g && g > always {
		return g, f, h
	}
	if g == always && f > h && h > always {
		return h, g, f
	}
	return f, g, h
}

// branch returns the rest of f with the level's variable set to the value.
//
//go:norace
func (d *diagram) branch(f ref, level int32, set bool) ref {
	n := d.nodes[f]
	switch {
	case n.level != level:
		return f
	case set:
		return n.high
	default:
		return n.low
	}
}

func (d *diagram) not(f ref) ref    { return d.ite(f, never, always) }
func (d *diagram) or(f, g ref) ref  { return d.ite(f, always, g) }
func (d *diagram) iff(f, g ref) ref { return d.ite(f, g, d.not(g)) }

// without returns f where g does not hold.
func (d *diagram) without(f, g ref) ref { return d.ite(g, never, f) }

// and returns where all of them hold.
func (d *diagram) and(fs ...ref) ref {
	all := always
	for _, f := range fs {
		all = d.ite(all, f, never)
	}
	return all
}

// witness returns values of the variables that f tests on a path to 1; f must not be never.
// Variables that it leaves out may have any value.
func (d *diagram) witness(f ref) map[int32]bool {
	values := map[int32]bool{}
	for f > always {
		n := d.nodes[f]
		values[n.level] = n.low == never
		f = d.branch(f, n.level, n.low == never)
	}
	return values
}
