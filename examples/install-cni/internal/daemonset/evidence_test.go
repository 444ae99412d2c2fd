// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"net/http"
	"slices"
	"testing"
	"time"
)

// TestPatience has answers that take a second each, after the watch has reported the end of the
// installation.
func TestPatience(t *testing.T) {
	t.Parallel()
	var (
		saw          = answer(200, there)
		mayNot       = answer(403, forbidden)
		unauthorized = answer(401, "")
		many         = func(r reply, n int) []reply { return slices.Repeat([]reply{r}, n) }
	)
	for name, test := range map[string]struct {
		answers  []reply
		evidence string // empty: not known
		unknown  string
		asked    int
	}{
		"refused in the end": {slices.Concat([]reply{saw}, many(answer(503, ""), 6), many(unauthorized, 5)), "refuses the token", "", 12},
		"most of the time":   {slices.Concat([]reply{saw}, many(answer(503, ""), 7), many(mayNot, 3), many(unauthorized, 2)), "refuses the token", "", 13},
		"role given back":    {slices.Concat([]reply{saw}, many(mayNot, 4), []reply{answer(200, leaving)}), "is being deleted", "", 6},
		"away after that":    {slices.Concat([]reply{saw, mayNot}, many(answer(503, ""), 30)), "", "503", 9},
		"never a role":       {many(mayNot, 30), "may not get it (403)", "", 6},
		"server restarts":    {slices.Concat([]reply{saw}, many(answer(503, ""), 30)), "", "503", 9},
		"never there":        {many(answer(404, notFound), 30), "", "nor did it before", 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			for _, reply := range test.answers {
				f.answers = append(f.answers, func(w http.ResponseWriter) {
					f.clock = f.clock.Add(time.Second)
					reply(w)
				})
			}
			f.look(t)
			f.Memory.Hear(true)
			f.Memory.Hear(false)
			if test.evidence != "" {
				f.wantDeleted(t, test.evidence)
			} else {
				f.wantUnknown(t, test.unknown)
			}
			if len(f.asked) != test.asked {
				t.Errorf("asked %d times, want %d", len(f.asked), test.asked)
			}
		})
	}
}
