// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// neighbour is a foreign base chain with all chains that it leads to, as a plan of its own, so that
// accept ends only this chain.
type neighbour struct {
	// plan has opaque rules, traced has none.
	plan, traced *interception.Plan
}

// addNeighbours adds the foreign chains whose order in their hook is known, and adds the others as
// doubts.
func (s *subject) addNeighbours(state interception.State) {
	bases := slices.DeleteFunc(slices.Clone(state.Foreign), func(c interception.ForeignChain) bool {
		text, harmless := harm(c, state.Foreign)
		forwards := c.Hook == interception.Forward.String()
		if forwards && !harmless {
			s.forwarding = append(s.forwarding, fmt.Sprintf("%s: %s", title(c), text))
		}
		return c.Hook == "" || forwards || harmless
	})
	for i, base := range bases {
		tied := false
		for j, other := range bases {
			tied = tied || i != j && ties(base, other)
		}
		at, ok := slotOf(base, s.plan)
		if !ok || tied {
			text, _ := harm(base, state.Foreign)
			s.doubts = append(s.doubts, fmt.Sprintf("%s: %s", title(base), text))
			continue
		}
		n := newNeighbour(interception.Owner(fmt.Sprintf("others-%d", i)), base, at, state.Foreign)
		s.beside[0], s.beside[1] = append(s.beside[0], n.plan), append(s.beside[1], n.traced)
	}
}

// title is a chain with its hook.
func title(c interception.ForeignChain) string {
	return fmt.Sprintf("%s/%s (hook %s, priority %d)", c.Table, c.Name, c.Hook, c.Priority)
}

// ties reports whether two base chains may see one packet in an unknown order.
func ties(a, b interception.ForeignChain) bool {
	families := familyOf(a) == familyOf(b) || familyOf(a) == interception.BothFamilies || familyOf(b) == interception.BothFamilies
	return a.Hook == b.Hook && a.Priority == b.Priority && families
}

// familyOf returns the family of the packets that a chain's table sees.
func familyOf(c interception.ForeignChain) interception.Family {
	for _, word := range strings.Fields(c.Table) {
		switch word {
		case "ip":
			return interception.IPv4
		case "ip6":
			return interception.IPv6
		case "legacy":
			continue
		}
		break
	}
	return interception.BothFamilies
}

// newNeighbour returns the plan. Rules that it cannot have become opaque.
func newNeighbour(owner interception.Owner, base interception.ForeignChain, at slot, all []interception.ForeignChain) neighbour {
	family, why := interception.Match{Family: familyOf(base)}, reason(title(base))
	table := interception.Table{
		Kind:    at.kind,
		Entries: []interception.Entry{{ID: "others.jump", Hook: at.hook, Offset: at.offset, Match: family, Chain: chainName(0), Why: why}},
	}
	for reached, i := []interception.ForeignChain{base}, 0; i < len(reached); i++ {
		made := interception.Chain{Name: chainName(i)}
		for j, r := range reached[i].Rules {
			text := fmt.Sprintf("%s/%s[%d] (hook %s, priority %d): %s -> %v",
				base.Table, reached[i].Name, j, base.Hook, base.Priority, r.Match, r.Action)
			r.ID, r.From = interception.RuleID(fmt.Sprintf("others.%d.%d", i, j)), nil
			r.Why = reason(fmt.Sprintf("%s/%s rule %d", base.Table, reached[i].Name, j))
			if jump, ok := r.Action.(interception.Jump); ok {
				r.Action = interception.Opaque{Text: text}
				if to := reachedChain(&reached, all, jump.Chain); to >= 0 {
					r.Action = interception.Jump{Chain: chainName(to)}
				}
			}
			if r, ok := at.taken(r, base.Type, text); ok {
				made.Rules = append(made.Rules, r)
			}
		}
		table.Chains = append(table.Chains, made)
	}
	if base.Policy != (interception.Accept{}) { // applies where the chain ends or returns
		policy := interception.Rule{ID: "others.policy.drop", Action: base.Policy, Why: reason("policy of " + title(base))}
		policy, _ = at.taken(policy, base.Type, "policy of "+title(base))
		table.Chains = append(table.Chains, interception.Chain{Name: "policy", Rules: []interception.Rule{policy}})
		table.Entries = append(table.Entries, interception.Entry{
			ID: "others.policy", Hook: at.hook, Offset: at.offset, Match: family, Chain: "policy", Why: why,
		})
	}
	return neighbour{
		plan:   &interception.Plan{Owner: owner, Objects: []interception.Object{table}},
		traced: &interception.Plan{Owner: owner, Objects: []interception.Object{decoded(table)}},
	}
}

func chainName(number int) interception.ChainName {
	return interception.ChainName(fmt.Sprintf("chain-%d", number))
}

// reachedChain adds a chain of the same table to the reached ones and returns its index; -1 if the
// chain does not exist or is not unique.
func reachedChain(reached *[]interception.ForeignChain, all []interception.ForeignChain, name interception.ChainName) int {
	is := func(c interception.ForeignChain) bool {
		return c.Table == (*reached)[0].Table && c.Name == string(name)
	}
	if at := slices.IndexFunc(*reached, is); at >= 0 {
		return at
	}
	at := slices.IndexFunc(all, is)
	if at < 0 || all[at].Shared || all[at].Hook != "" {
		return -1
	}
	*reached = append(*reached, all[at])
	return len(*reached) - 1
}

// maxReason is the maximum length of reasons in plans.
const maxReason = 76

// reason converts a text to the characters that reasons may have.
func reason(text string) string {
	text = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" .,:()/_-", r) {
			return r
		}
		return '-'
	}, text)
	return text[:min(len(text), maxReason)]
}
