// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"maps"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// Answer is yes, no or unknown. The zero value is not a valid answer.
type Answer uint8

// The answers.
const (
	// Yes: every packet ends alike.
	Yes Answer = iota + 1
	// No: some packet does not, and there is an example.
	No
	// Unknown: no packet is known to end differently, and some meet a rule that could not be
	// decoded.
	Unknown
)

// String returns "yes", "no" or "unknown".
func (a Answer) String() string {
	names := [...]string{"no answer", "yes", "no", "unknown"}
	if int(a) >= len(names) {
		return names[0]
	}
	return names[a]
}

// Comparison is the result of [Equivalent].
type Comparison struct {
	// Answer is whether the rules do the same.
	Answer Answer
	// Packet is one that ends differently, with No; else the zero Packet.
	Packet trace.Packet
	// Worlds are those in which it was sent: with the first rules, and with the second. Their live
	// sets have members that make the difference.
	Worlds [2]trace.World
	// Outcomes are the results of trace.Trace in each.
	Outcomes [2]trace.Outcome
	// Undecoded are, with Unknown, the rules that could not be decoded and that packets meet, with
	// their positions.
	Undecoded []Place
}

// Place is the location of a rule.
type Place struct {
	// Owner is the rule's owner.
	Owner interception.Owner
	// Position is the rule's position. For an entry the chain is "". It is zero for parts of a
	// state other than its objects.
	Position interception.Position
	// Hook is the hook of an entry.
	Hook interception.Hook
	// Rule is the rule; for an entry, the jump.
	Rule interception.Rule
}

// String returns the place and the id, such as "nat/output[3] outbound.local".
func (p Place) String() string {
	if p.Position == (interception.Position{}) {
		return string(p.Rule.ID)
	}
	if p.Position.Chain == "" {
		return fmt.Sprintf("%s hook %s %s", p.Position.Table, p.Hook, p.Rule.ID)
	}
	return fmt.Sprintf("%s %s", p.Position, p.Rule.ID)
}

func (r *rule) place() Place {
	return Place{r.owner, interception.Position{Table: r.kind, Chain: r.chain, Index: r.index}, r.hook, r.Rule}
}

// String returns the answer, and with No the packet and where it ends.
func (c Comparison) String() string {
	switch c.Answer {
	case No:
		return fmt.Sprintf("no: %s\n  first: %s\n  second: %s", c.Packet, c.Outcomes[0], c.Outcomes[1])
	case Unknown:
		text := "unknown: packets meet rules that could not be decoded:"
		for _, p := range c.Undecoded {
			text += fmt.Sprintf("\n  %s: %v", p, p.Rule.Action)
		}
		return text
	case Yes:
	}
	return c.Answer.String()
}

// Equivalent reports whether two plans, or states, do the same to every packet: whether it ends
// alike in two worlds that differ only in them. The package documentation defines packets and
// outcomes. The answer is exact, except that it ignores packets in which two addresses coincide
// that the model takes for different ones; [trace.Trace] confirms a No.
//
// The errors are those of invalid rules ([interception.ErrPlan]) or worlds ([trace.ErrWorld]), and
// [ErrTooLarge].
func Equivalent[A, B Rules](a A, b B, o Options) (Comparison, error) {
	first, err := subjectOf(a)
	if err != nil {
		return Comparison{}, fmt.Errorf("equivalent: the first rules: %w", err)
	}
	second, err := subjectOf(b)
	if err != nil {
		return Comparison{}, fmt.Errorf("equivalent: the second rules: %w", err)
	}
	world := o.world(slices.Concat(first.plans(), second.plans())...)
	c, err := compare([2]subject{first, second}, world, o.maxNodes())
	if err != nil {
		return Comparison{}, fmt.Errorf("equivalent: %w", err)
	}
	return c, nil
}

// comparison is a comparison in progress.
type comparison struct {
	question
	worlds  [2]trace.World
	engines [2]*engine
	ends    [2][]thread
}

func compare(subjects [2]subject, world trace.World, limit int) (Comparison, error) {
	c := comparison{question: newQuestion(limit)}
	live := &members{}
	domain := always
	for i, s := range subjects {
		var err error
		if c.engines[i], c.worlds[i], err = c.prepare(s, world, live); err != nil {
			return Comparison{}, err
		}
		domain = c.and(domain, c.engines[i].domain())
	}
	for i, e := range c.engines {
		c.ends[i] = e.walk(domain)
	}
	differ := c.differ(c.consistent(live))
	if c.err != nil {
		return Comparison{}, c.err
	}
	return c.answer(differ)
}

// differ returns the packets that end differently without meeting an opaque rule, separately for
// each two threads, because the union is not needed.
func (c *comparison) differ(consistent ref) []ref {
	var differ []ref
	for _, a := range c.ends[0] {
		if a.end.verdict == trace.Unknown {
			continue
		}
		left := c.and(c.unlike(a), consistent)
		for _, b := range c.ends[1] {
			if left == never {
				break // which is soon, if most packets end alike
			}
			if both := c.and(left, b.where); both != never {
				left = c.without(left, both)
				if found := c.without(both, c.same(a.state, b.state)); found != never {
					differ = append(differ, found)
				}
			}
		}
	}
	return differ
}

// unlike returns the part of a first thread's packets that the second rules end in another, known
// state.
func (c *comparison) unlike(a thread) ref {
	left := a.where
	for _, b := range c.ends[1] {
		if b.end.verdict == trace.Unknown || a.state == b.state {
			left = c.without(left, b.where)
		}
	}
	return left
}

func (c *comparison) answer(differ []ref) (Comparison, error) {
	no, err := c.engines[0].shown(differ, c.worlds[:], "end differently", func(outcomes []trace.Outcome) bool {
		return !Same(outcomes[0], outcomes[1])
	})
	if err != nil {
		return Comparison{}, err
	}
	if no.Answer != No {
		return c.alike(), nil
	}
	return Comparison{Answer: No, Packet: no.Packet, Worlds: [2]trace.World(no.Worlds), Outcomes: [2]trace.Outcome(no.Outcomes)}, nil
}

// alike returns the answer if no packet ends differently.
func (c *comparison) alike() Comparison {
	answer := Comparison{Answer: Yes}
	for i, ends := range c.ends {
		for _, t := range ends {
			if t.end.verdict != trace.Unknown {
				continue
			}
			answer.Answer = Unknown
			answer.Undecoded = append(answer.Undecoded, c.engines[i].rules[t.why.last].place())
		}
	}
	return answer
}

// cube returns the packets for which the variables have the given values.
func (q question) cube(v values) ref {
	f := always
	for _, level := range slices.Backward(slices.Sorted(maps.Keys(v))) {
		if v[level] {
			f = q.node(level, never, f)
		} else {
			f = q.node(level, f, never)
		}
	}
	return f
}
