// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"errors"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// Coverage is the result of [Covers].
type Coverage struct {
	// Answer is whether the rules let no packet past the proxy.
	Answer Answer
	// Packet is one that bypasses the proxy, with No; else the zero Packet.
	Packet trace.Packet
	// Worlds are those in which Packet was sent: one with each of the plans, and the last with the
	// rules.
	Worlds []trace.World
	// Outcomes are where trace.Trace has it end in each.
	Outcomes []trace.Outcome
	// Undecoded are, with Unknown, the rules that could not be decoded and that packets meet, with
	// their positions.
	Undecoded []Place
}

// String returns the answer, and with No the packet and where it ends.
func (c Coverage) String() string {
	if c.Answer != No {
		return Comparison{Answer: c.Answer, Undecoded: c.Undecoded}.String()
	}
	last := len(c.Outcomes) - 1
	text := fmt.Sprintf("no: %s", c.Packet)
	for i, o := range c.Outcomes[:last] {
		text += fmt.Sprintf("\n  plan %d: %s", i+1, o)
	}
	return text + fmt.Sprintf("\n  the rules: %s", c.Outcomes[last])
}

// Covers reports whether a plan, or a state, lets no packet that all of the given plans capture
// bypass the mesh's proxy. These are the packets that open a connection or exchange and that reach
// a listener of the proxy under every one of the plans. Under the rules, each must also reach such
// a listener, or no socket at all: a rule drops or rejects it, or it has no route. This is exactly
// what can be demanded of a namespace while one plan replaces another.
//
// Covers is about packets whose sockets set no mark: a plan's rules and routes communicate by
// marks, so that a process that may set them can bypass any plan.
//
// The answer is as exact as that of [Equivalent], and No and Unknown mean the same. It is an error
// to give no plans; other errors are those of invalid rules ([interception.ErrPlan]) or worlds
// ([trace.ErrWorld]), and [ErrTooLarge].
func Covers[R Rules](rules R, plans []*interception.Plan, o Options) (Coverage, error) {
	if len(plans) == 0 {
		return Coverage{}, errors.New("covers: there is no plan whose packets should be captured: give one at least")
	}
	var subjects []subject
	for i, plan := range plans {
		s, err := subjectOf(plan)
		if err != nil {
			return Coverage{}, fmt.Errorf("covers: plan %d: %w", i+1, err)
		}
		subjects = append(subjects, s)
	}
	s, err := subjectOf(rules)
	if err != nil {
		return Coverage{}, fmt.Errorf("covers: the rules: %w", err)
	}
	c := coverage{question: newQuestion(o.maxNodes()), live: &members{}}
	found, err := c.answer(append(subjects, s), o)
	if err != nil {
		return Coverage{}, fmt.Errorf("covers: %w", err)
	}
	return found, nil
}

// coverage is an answer in the making.
type coverage struct {
	question
	live    *members
	engines []*engine
	worlds  []trace.World
}

// prepare gives each subject a world of its own.
func (c *coverage) prepare(subjects []subject, o Options) error {
	var plans []*interception.Plan
	for _, s := range subjects {
		plans = append(plans, s.plans()...)
	}
	world := o.world(plans...)
	for _, s := range subjects {
		e, traced, err := c.question.prepare(s, world, c.live)
		if err != nil {
			return err
		}
		c.engines, c.worlds = append(c.engines, e), append(c.worlds, traced)
	}
	return nil
}

func (c *coverage) answer(subjects []subject, o Options) (Coverage, error) {
	if err := c.prepare(subjects, o); err != nil {
		return Coverage{}, err
	}
	first, last := c.engines[0], c.engines[len(c.engines)-1]
	asked := c.and(first.opens(), c.not(c.variable(c.known)), c.equals(c.marks[ofPacket], 0))
	for _, e := range c.engines {
		asked = c.and(asked, e.domain())
	}
	for _, e := range c.engines[:len(c.engines)-1] {
		captured := never
		for _, t := range e.walk(asked) {
			if e.captures(t) {
				captured = c.or(captured, t.where)
			}
		}
		asked = captured
	}
	var past []ref
	found := Coverage{Answer: Yes}
	for _, t := range last.walk(asked) {
		switch {
		case t.end.verdict == trace.Unknown:
			found.Answer = Unknown
			found.Undecoded = append(found.Undecoded, last.rules[t.why.last].place())
		case last.passes(t):
			past = append(past, t.where)
		}
	}
	consistent := last.consistent(c.live)
	if c.err != nil {
		return Coverage{}, c.err
	}
	no, err := first.shown(c.narrowed(past, consistent), c.worlds, "go past the proxy", goesPast)
	if err != nil || no.Answer == No {
		return no, err
	}
	return found, nil
}

// goesPast reports whether the proxy gets a packet in all worlds but the last.
func goesPast(outcomes []trace.Outcome) bool {
	for i, o := range outcomes {
		if captured := o.Verdict == trace.Delivered && o.Listener.Proxy; captured != (i < len(outcomes)-1) {
			return false
		}
	}
	return true
}

// captures reports whether a listener of the proxy gets the packets of a thread that has ended.
func (e *engine) captures(t thread) bool {
	return t.end.verdict == trace.Delivered && t.taker >= 0 && e.net.Listeners[t.taker].Proxy
}

// passes reports whether a socket other than the proxy's gets the packets, or would if it existed.
func (e *engine) passes(t thread) bool {
	return t.end.verdict == trace.Sent || t.end.verdict == trace.Refused || t.end.verdict == trace.Delivered && !e.captures(t)
}

// maxTries limits the packets with coinciding addresses to try.
const maxTries = 64

// shown returns one of the packets for which trace.Trace confirms the difference; the zero Coverage
// if there is no such packet.
func (e *engine) shown(packets []ref, worlds []trace.World, what string, confirms func([]trace.Outcome) bool) (Coverage, error) {
	for range maxTries {
		if len(packets) == 0 {
			return Coverage{}, nil
		}
		v := values(e.witness(e.pleasant(packets)))
		found := Coverage{Answer: No, Packet: e.packet(v), Worlds: slices.Clone(worlds)}
		for i := range found.Worlds {
			pod := &found.Worlds[i].Namespaces[0]
			pod.LiveSets = e.liveSets(v, pod.Plans)
			outcome, err := trace.Trace(found.Worlds[i], found.Packet)
			if err != nil {
				return Coverage{}, err
			}
			found.Outcomes = append(found.Outcomes, outcome)
		}
		if confirms(found.Outcomes) {
			return found, nil
		}
		packets = e.narrowed(packets, e.not(e.cube(v)))
		if e.err != nil {
			return Coverage{}, e.err
		}
	}
	return Coverage{}, fmt.Errorf("%w: of the packets that may %s, %d have addresses that coincide", ErrTooLarge, what, maxTries)
}
