// SPDX-License-Identifier: Apache-2.0

package interception

import (
	"errors"
	"fmt"
	"slices"
)

// match checks a match against the hooks that reach it and the sets of the plan.
func (v *validator) match(at place, table TableKind, m Match, hooks []Hook) {
	for _, err := range []error{
		conditionError("in", m.In), conditionError("out", m.Out),
		conditionError("src", m.Src), conditionError("dst", m.Dst),
		conditionError("src", m.SrcSet), conditionError("dst", m.DstSet),
		conditionError("sport", m.L4.SrcPort()), conditionError("dport", m.L4.DstPort()),
		conditionError("uid", m.UID), conditionError("gid", m.GID),
		conditionError("mark", m.Mark), conditionError("connmark", m.ConnMark), conditionError("state", m.State),
		markError(m.Mark.Set()), markError(m.ConnMark.Set()),
		validateFamilies(m), validateL4(m.L4), validateDirection(m.Direction),
		v.reference(m.SrcSet), v.reference(m.DstSet),
	} {
		v.check(at, err)
	}
	if table == Raw && (m.ConnMark.Present() || m.State.Present() || m.Direction != AnyDirection) {
		v.check(at, errors.New("raw comes before connection tracking, which knows state, direction and connmark: match them in mangle"))
	}
	for _, name := range slices.Concat(m.In.Set().Names(), m.Out.Set().Names()) {
		v.check(at, name.validatePattern())
	}
	for _, hook := range hooks {
		v.check(at, hookError(m, hook))
	}
}

func conditionError[S Operand](field string, c Condition[S]) error {
	if c.Present() && c.Set().IsEmpty() {
		return fmt.Errorf("the set that %s is compared with is empty: leave out the condition to match all, or the rule to match nothing", field)
	}
	return nil
}

func validateL4(l L4) error {
	flags := l.TCPFlags()
	switch {
	case l.Protocol() == AnyProtocol && l.narrowed():
		return errors.New("a port or flag needs a protocol: begin with TCP() or UDP()")
	case flags.Present() && l.Protocol() != ProtocolTCP:
		return errors.New("only TCP has flags: begin with TCP()")
	case flags.Set().Set&^flags.Set().Mask != 0:
		return fmt.Errorf("flags %s: one that is to be set is not looked at", flags.Set())
	}
	return conditionError("flags", flags)
}

func validateDirection(d Direction) error {
	if d > DirectionReply {
		return fmt.Errorf("%s is not a direction: use DirectionOriginal or DirectionReply", d)
	}
	return nil
}

// markError refuses bits outside of the mask, which no packet could match.
func markError(m MarkBits) error {
	if m.Value&^m.Mask != 0 {
		return fmt.Errorf("mark %s: the value has bits outside of the mask", m)
	}
	return nil
}

// validateFamilies checks that all parts of the match, and literal prefixes, have one family.
func validateFamilies(m Match) error {
	for _, c := range []Condition[PrefixSet]{m.Src, m.Dst} {
		if c.Present() && !c.Set().IsEmpty() && c.Set().Family() == BothFamilies {
			return fmt.Errorf("prefixes of both families in one condition (%s): write a rule for each family", c.Set())
		}
	}
	named := m.families()
	for _, f := range named {
		if f != named[0] {
			return fmt.Errorf("the match names both families (%s): no packet is of both", m)
		}
	}
	return nil
}

// reference checks that the plan has the set and that it is of the reference's family.
func (v *validator) reference(c Condition[SetRef]) error {
	if !c.Present() || c.Set().IsEmpty() {
		return nil
	}
	ref := c.Set()
	if family, ok := v.sets[ref.Name]; !ok || family != ref.Family {
		return fmt.Errorf("set %s (%s) is not in the plan: refer to sets by what Builder.Set returned", ref, ref.Family)
	}
	return nil
}

// hookError reports a condition on a field that packets in the hook do not have.
func hookError(m Match, hook Hook) error {
	switch {
	case m.In.Present() && (hook == Output || hook == Postrouting):
		return fmt.Errorf("no incoming interface is known in %s: the rule could never match", hook)
	case m.Out.Present() && (hook == Prerouting || hook == Input):
		return fmt.Errorf("no outgoing interface is known in %s: the rule could never match", hook)
	case (m.UID.Present() || m.GID.Present()) && hook != Output && hook != Postrouting:
		return fmt.Errorf("no owner is known in %s: the rule could never match", hook)
	default:
		return nil
	}
}

// reachedHooks returns the hooks that lead to each chain. It refuses jumps in a circle or too deep.
func reachedHooks(t Table) (map[ChainName][]Hook, error) {
	reached := map[ChainName][]Hook{}
	for _, entry := range t.Entries {
		if err := reach(t, entry.Chain, entry.Hook, 1, reached); err != nil {
			return nil, err
		}
	}
	for _, chain := range t.Chains { // includes chains that no hook leads to
		if err := reach(t, chain.Name, 0, 1, map[ChainName][]Hook{}); err != nil {
			return nil, err
		}
	}
	return reached, nil
}

// reach marks chain, and all chains it jumps to, as reached from hook. A depth above maxJumps means
// a circle or a depth that the kernel would refuse.
func reach(t Table, name ChainName, hook Hook, depth int, reached map[ChainName][]Hook) error {
	if depth > maxJumps {
		return fmt.Errorf("chain %q calls itself, or chains call each other more than %d deep", string(name), maxJumps)
	}
	chain, ok := t.Chain(name)
	if !ok {
		return nil // reported with the rule or entry that names it
	}
	if !slices.Contains(reached[name], hook) {
		reached[name] = append(reached[name], hook)
	}
	for _, rule := range chain.Rules {
		if jump, ok := rule.Action.(Jump); ok {
			if err := reach(t, jump.Chain, hook, depth+1, reached); err != nil {
				return err
			}
		}
	}
	return nil
}
