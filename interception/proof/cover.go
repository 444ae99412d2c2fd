// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"errors"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// Coverage is what [Covers] found.
type Coverage struct {
	// Answer says whether the rules let nothing past the proxy.
	Answer Answer
	// Packet is one that goes past it, with No; the zero Packet otherwise.
	Packet trace.Packet
	// Worlds are those in which it was sent: with each of the plans, and last with the rules.
	Worlds []trace.World
	// Outcomes are where trace.Trace has it end in each.
	Outcomes []trace.Outcome
	// Undecoded are, with Unknown, the rules that packets meet which could not be decoded, with
	// their positions.
	Undecoded []Place
}

// String says the answer, and with No the packet and where it ends.
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

// Covers reports whether a plan, or a state, lets nothing past the mesh's proxy that all of some
// plans capture: whether each packet that opens a connection or exchange, and which a listener of
// the proxy's would get under every one of the plans, comes to such a listener under the rules,
// too, or to nobody: a rule drops or rejects it, or it has no way. Of what stands in a namespace
// while one plan is replaced by another, no more can be asked, and no less.
//
// Asked about are packets whose sockets set no mark: by marks a plan's rules and routes talk to
// each other, and whoever may set them can go past any plan.
//
// The answer is exact, as that of [Equivalent] is, and so are No and Unknown. Without plans it is
// an error; other errors are those of invalid rules ([interception.ErrPlan]) or worlds
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

// stand gives each subject a world of its own.
func (c *coverage) stand(subjects []subject, o Options) error {
	var plans []*interception.Plan
	for _, s := range subjects {
		plans = append(plans, s.plans()...)
	}
	world := o.world(plans...)
	for _, s := range subjects {
		e, traced, err := c.question.stand(s, world, c.live)
		if err != nil {
			return err
		}
		c.engines, c.worlds = append(c.engines, e), append(c.worlds, traced)
	}
	return nil
}

func (c *coverage) answer(subjects []subject, o Options) (Coverage, error) {
	if err := c.stand(subjects, o); err != nil {
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

// captures reports whether a listener of the proxy's gets the packets of a thread that has ended.
func (e *engine) captures(t thread) bool {
	return t.end.verdict == trace.Delivered && t.taker >= 0 && e.net.Listeners[t.taker].Proxy
}

// passes reports whether somebody else gets them, or would if he was there.
func (e *engine) passes(t thread) bool {
	return t.end.verdict == trace.Sent || t.end.verdict == trace.Refused || t.end.verdict == trace.Delivered && !e.captures(t)
}

// maxTries is how many packets are tried whose addresses coincide.
const maxTries = 64

// shown is one of the packets, which trace.Trace confirms to do what they may do; the zero Coverage
// when there is none.
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
