// SPDX-License-Identifier: Apache-2.0

package interception

import "cmp"

// Fixed returns the action that does the same to the packets of a match which fixes all bits that a
// copies; false if the match leaves any of them open. nf_tables copies single bits since Linux 6.13
// only.
func (a SaveMark) Fixed(m Match) (SetConnMark, bool) {
	bits, ok := fixedBits(m.canonical().Mark, a.Mask)
	return SetConnMark{bits}, ok
}

// Fixed returns the action that does the same to the packets of a match which fixes all bits that a
// copies, as [SaveMark.Fixed] does.
func (a RestoreMark) Fixed(m Match) (SetMark, bool) {
	bits, ok := fixedBits(m.canonical().ConnMark, a.Mask)
	return SetMark{bits}, ok
}

// fixedBits returns the values of the bits of a mask, of which 0 stands for all, if the condition
// leaves each only one.
func fixedBits(c Condition[MarkBits], mask Mark) (MarkBits, bool) {
	mask = cmp.Or(mask, ^mask)
	if !c.Present() || c.Negated() || c.Set().Mask&mask != mask {
		return MarkBits{}, false
	}
	return MarkBits{Value: c.Set().Value & mask, Mask: mask}, true
}

// canonicalAction returns one spelling of actions that do the same to the packets of the match.
func canonicalAction(m Match, a Action) Action {
	switch a := a.(type) {
	case SaveMark:
		if set, ok := a.Fixed(m); ok {
			return set
		}
	case RestoreMark:
		if set, ok := a.Fixed(m); ok {
			return set
		}
	}
	return a
}
