// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// deviations are those of a state as text, and doubts are those that may change where a packet ends.
func deviations(s interception.State) (all, doubts []string) {
	for _, d := range s.Deviations {
		text := d.At
		if d.Object != nil {
			text += fmt.Sprintf(" %+v", d.Object)
		}
		if d.Want != "" {
			text += ": want " + d.Want
		}
		if d.Got != "" {
			text += ": got " + d.Got
		}
		all = append(all, text)
		if !s.Dormant || d.Object != nil { // else it is of a table that nobody asks
			doubts = append(doubts, text)
		}
	}
	return all, doubts
}

// harm says what in a base chain, or in those that it leads to, may change where a packet ends; true when nothing can.
func harm(base interception.ForeignChain, all []interception.ForeignChain) (text string, harmless bool) {
	if base.Policy != (interception.Accept{}) {
		return fmt.Sprintf("policy %v", base.Policy), false
	}
	reached := []interception.ForeignChain{base}
	for i := 0; i < len(reached); i++ {
		chain := reached[i]
		if chain.Shared && i > 0 {
			return chain.Name + " leads to the owner's chains", false
		}
		for at, r := range chain.Rules {
			if jump, ok := r.Action.(interception.Jump); ok {
				target := func(c interception.ForeignChain) bool { return c.Table == base.Table && c.Name == string(jump.Chain) }
				if to := slices.IndexFunc(all, target); to >= 0 {
					if !slices.ContainsFunc(reached, target) {
						reached = append(reached, all[to])
					}
					continue
				}
			}
			if changes(r.Action, base.Shared) {
				return fmt.Sprintf("%s[%d] %s -> %v", chain.Name, at, r.Match, r.Action), false
			}
		}
	}
	return "", true
}

// changes reports whether an action may change where a packet ends, in a chain that is shared with the owner or not.
func changes(a interception.Action, shared bool) bool {
	switch a.(type) {
	case interception.Log:
		return false
	case interception.Accept, interception.Return:
		return shared
	default:
		return true
	}
}
