// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Mutation returns the plan with one of its rules changed, and describes the change: the rule is
// removed, swapped with the next one, or has another action or condition. The plan may be invalid
// or unchanged. The given plan must have a table.
func Mutation(c Choices, plan *interception.Plan) (*interception.Plan, string) {
	changed := &interception.Plan{Owner: plan.Owner, Objects: slices.Clone(plan.Objects)}
	var tables []int
	for i, object := range changed.Objects {
		if _, ok := object.(interception.Table); ok {
			tables = append(tables, i)
		}
	}
	at := Pick(c, tables...)
	table, _ := changed.Objects[at].(interception.Table)
	table.Chains = slices.Clone(table.Chains)
	chain := &table.Chains[c(len(table.Chains))]
	chain.Rules = slices.Clone(chain.Rules)
	changed.Objects[at] = table
	if len(chain.Rules) == 0 {
		return changed, "nothing"
	}
	i := c(len(chain.Rules))
	rule := &chain.Rules[i]
	switch c(6) {
	case 0:
		how := fmt.Sprintf("without %s", rule.ID)
		chain.Rules = slices.Delete(chain.Rules, i, i+1)
		return changed, how
	case 1:
		j := (i + 1) % len(chain.Rules)
		how := fmt.Sprintf("%s and %s change places", rule.ID, chain.Rules[j].ID)
		chain.Rules[i], chain.Rules[j] = chain.Rules[j], chain.Rules[i]
		return changed, how
	case 2:
		rule.Action = otherAction(rule.Action)
	default:
		rule.Match = otherMatch(c, rule.Match)
	}
	return changed, fmt.Sprintf("%s is %s -> %v", rule.ID, rule.Match, rule.Action)
}

func otherAction(a interception.Action) interception.Action {
	switch a := a.(type) {
	case interception.Return:
		return interception.Accept{}
	case interception.Accept:
		return interception.Return{}
	case interception.RedirectTo:
		return interception.RedirectTo{Port: a.Port + 1}
	case interception.TProxyTo:
		return interception.TProxyTo{Port: a.Port, Mark: interception.WholeMark(a.Mark.Value + 1)}
	case interception.SetMark:
		return interception.SetMark{Mark: interception.WholeMark(a.Mark.Value + 1)}
	case interception.SetZone:
		return interception.SetZone{Zone: a.Zone + 1, Direction: a.Direction}
	default:
		return interception.Return{}
	}
}

// otherMatch narrows, widens or negates a condition.
func otherMatch(c Choices, m interception.Match) interception.Match {
	switch c(6) {
	case 0:
		m.L4 = Pick(c, interception.TCP().To(interception.Ports(8080)), interception.TCP(), interception.UDP())
	case 1:
		m.Out, m.In = negated(m.Out), negated(m.In)
	case 2:
		m.UID, m.GID = negated(m.UID), negated(m.GID)
	case 3:
		m.Dst, m.Src, m.DstSet = negated(m.Dst), negated(m.Src), negated(m.DstSet)
	case 4:
		m.Mark, m.ConnMark, m.State = negated(m.Mark), negated(m.ConnMark), negated(m.State)
		if m.Direction != interception.AnyDirection {
			m.Direction = interception.DirectionOriginal + interception.DirectionReply - m.Direction
		}
	case 5:
		m.UID, m.GID = interception.Condition[interception.UIDSet]{}, interception.Condition[interception.GIDSet]{}
	}
	return m
}

func negated[S interception.Operand](c interception.Condition[S]) interception.Condition[S] {
	if !c.Present() {
		return c
	}
	if c.Negated() {
		return interception.Is(c.Set())
	}
	return interception.Not(c.Set())
}
