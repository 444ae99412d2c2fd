// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"testing"
)

// TestDecideCombinations combines each answer with each word of the watch, as often as it takes to
// last.
func TestDecideCombinations(t *testing.T) {
	t.Parallel()
	tests := map[observation]verdict{
		{unclear, Unheard}: undecided, {unclear, There}: undecided, {unclear, Removed}: undecided,
		{wanted, Unheard}: stay, {wanted, There}: stay, {wanted, Removed}: stay,
		{leaving, Unheard}: uninstall, {leaving, There}: uninstall, {leaving, Removed}: uninstall,
		{missing, Unheard}: uninstall, {missing, There}: uninstall, {missing, Removed}: uninstall,
		{refused, Unheard}: undecided, {refused, There}: undecided, {refused, Removed}: uninstall,
	}
	for set := unclear; set <= refused; set++ {
		for word := Unheard; word <= Removed; word++ {
			o := observation{set, word}
			want, listed := tests[o]
			if got, _ := decide(slices.Repeat([]observation{o}, lasting)); !listed || got != want {
				t.Errorf("%v again and again: %v, want %v", o, got, want)
			}
			if o.set != wanted && o.set != leaving {
				want = undecided
			}
			if got, _ := decide(slices.Repeat([]observation{o}, lasting-1)); got != want {
				t.Errorf("%v a few times: %v, want %v", o, got, want)
			}
		}
	}
}

// TestDecideOrders has answers in different orders.
func TestDecideOrders(t *testing.T) {
	t.Parallel()
	var (
		gone      = observation{missing, There}
		goneAlone = observation{missing, Unheard}
		goneAll   = observation{missing, Removed}
		deleted   = observation{refused, Removed}
		anew      = observation{refused, There}
		alone     = observation{refused, Unheard}
		nothing   = observation{unclear, Removed}
		there     = observation{wanted, There}
	)
	sequence := func(parts ...any) []observation {
		var all []observation
		times := 1
		for _, part := range parts {
			switch part := part.(type) {
			case int:
				times = part
			case observation:
				all = append(all, slices.Repeat([]observation{part}, times)...)
				times = 1
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		answers []observation
		want    verdict
	}{
		"nothing yet":                                    {nil, undecided},
		"role and account go before the pods":            {sequence(2, anew, 5, deleted), uninstall},
		"they go first, and the object's end comes late": {sequence(6, anew, 4, deleted), undecided},
		"the DaemonSet goes, then its role":              {sequence(gone, 4, deleted), uninstall},
		"the same, without a watch":                      {sequence(goneAlone, 9, alone), undecided},
		"the same, and the object is still there":        {sequence(gone, 4, anew), undecided},
		"a refusal, where nobody watches":                {sequence(9, alone), undecided},
		"a refusal before that it is gone":               {sequence(9, alone, 4, goneAlone), undecided},
		"account anew":                                   {sequence(15, anew), undecided},
		"replaced by force":                              {sequence(4, gone, there), stay},
		"all replaced by force":                          {sequence(2, goneAll, 2, deleted, 9, anew), undecided},
		"all replaced by force, account known":           {sequence(2, goneAll, gone, there), stay},
		"replaced, then deleted":                         {sequence(2, deleted, anew, 5, deleted), uninstall},
		"interrupted":                                    {sequence(4, deleted, nothing, 4, deleted), undecided},
		"interrupted, and lasting":                       {sequence(4, deleted, nothing, 5, deleted), uninstall},
		"the first word on the DaemonSet counts":         {sequence(there, 9, deleted), stay},
		"its deletion, after a while":                    {sequence(3, alone, observation{leaving, Unheard}), uninstall},
	} {
		if got, _ := decide(test.answers); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestHear has the words of a watch that may start again.
func TestHear(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		says []bool
		want Word
		last bool // it differs from the last one
	}{
		"nothing":                      {nil, Unheard, false},
		"never there":                  {[]bool{false, false}, Unheard, false},
		"there":                        {[]bool{true}, There, true},
		"there, said again":            {[]bool{true, true}, There, false},
		"removed":                      {[]bool{true, false}, Removed, true},
		"removed, said again":          {[]bool{true, false, false}, Removed, false},
		"removed, and made anew":       {[]bool{true, false, true}, There, true},
		"there only after a while":     {[]bool{false, true}, There, true},
		"removed, made anew, and gone": {[]bool{true, false, true, false}, Removed, true},
	} {
		var m Memory
		changed := false
		for _, there := range test.says {
			_, changed = m.Hear(there)
		}
		if m.last() != test.want || changed != test.last {
			t.Errorf("%s: %v, changed %v", name, m.last(), changed)
		}
	}
}
