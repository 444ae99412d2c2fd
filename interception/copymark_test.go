// SPDX-License-Identifier: Apache-2.0

package interception

import "testing"

// TestFixed has matches that fix all of the bits that a mark's copy is about, and others.
func TestFixed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mark Condition[MarkBits]
		mask Mark
		want MarkBits // of no bits: not fixed
	}{
		"exactly":            {Is(MarkBits{0x220, 0x220}), 0x220, MarkBits{0x220, 0x220}},
		"more bits":          {Is(MarkBits{0x201, 0xfff}), 0xf, MarkBits{1, 0xf}},
		"all bits":           {Is(WholeMark(7)), 0, WholeMark(7)},
		"some bits":          {Is(MarkBits{0x200, 0x200}), 0x220, MarkBits{}},
		"not all bits":       {Is(MarkBits{1, 0xff}), 0, MarkBits{}},
		"another value":      {Not(MarkBits{1, 3}), 3, MarkBits{}},
		"not the one bit":    {Not(MarkBits{4, 4}), 4, MarkBits{0, 4}},
		"without conditions": {Condition[MarkBits]{}, 1, MarkBits{}},
	} {
		save, saved := SaveMark{c.mask}.Fixed(Match{Mark: c.mark})
		restore, restored := RestoreMark{c.mask}.Fixed(Match{ConnMark: c.mark})
		if save.Mark != c.want || restore.Mark != c.want || saved == c.want.IsEmpty() || restored == c.want.IsEmpty() {
			t.Errorf("%s: got %v, %t and %v, %t, want %v", name, save, saved, restore, restored, c.want)
		}
		if _, other := (SaveMark{c.mask}).Fixed(Match{ConnMark: c.mark}); other {
			t.Errorf("%s: the connection's mark decides about the packet's", name)
		}
	}
}

// TestDiffOfCopiedMarks compares a copy with what it does under its match.
func TestDiffOfCopiedMarks(t *testing.T) {
	t.Parallel()
	bits := MarkBits{0x220, 0x220}
	for name, c := range map[string]struct {
		match Match
		other MangleAction
		same  bool
	}{
		"fixed":         {Match{Mark: Is(bits)}, SetConnMark{bits}, true},
		"another value": {Match{Mark: Is(bits)}, SetConnMark{MarkBits{0x200, 0x220}}, false},
		"not fixed":     {Match{}, SetConnMark{bits}, false},
	} {
		plan := func(action MangleAction) *Plan {
			p, err := Build("test-mesh", func(b *Builder) { b.Mangle("chain").Do("copy", c.match, action, "why") })
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		copies := plan(SaveMark{0x220})
		for _, d := range [][]Drift{Diff(copies, observed(plan(c.other))), Diff(plan(c.other), observed(copies))} {
			if (d == nil) != c.same {
				t.Errorf("%s: got %v, same %t", name, d, c.same)
			}
		}
	}
}
