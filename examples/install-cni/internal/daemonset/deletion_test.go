// SPDX-License-Identifier: Apache-2.0

package daemonset_test

import (
	"net/http"
	"slices"
	"testing"
	"time"
)

// TestPatience is about answers, of which each takes a second. Who may not get the DaemonSet any more is refused altogether within ten.
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
		evidence string // empty: it isn't known
		unknown  string
		asked    int
	}{
		"all deleted at once": {slices.Concat([]reply{saw}, many(mayNot, 10), many(unauthorized, 3)), "knows the service account no more", "", 14},
		"refused in the end":  {slices.Concat([]reply{saw}, many(mayNot, 17), many(unauthorized, 3)), "knows the service account no more", "", 21},
		"role taken away":     {slices.Concat([]reply{saw}, many(mayNot, 30)), "", "may not get it any more (403)", 21},
		"role given back":     {slices.Concat([]reply{saw}, many(mayNot, 12), []reply{answer(200, leaving)}), "is being deleted", "", 14},
		"away behind that":    {slices.Concat([]reply{saw, mayNot}, many(answer(503, ""), 30)), "", "503", 21},
		"never a role":        {many(mayNot, 30), "", "may not get it (403)", 9},
		"server restarts":     {slices.Concat([]reply{saw}, many(answer(503, ""), 30)), "", "503", 9},
		"never there":         {many(answer(404, notFound), 30), "", "had none before", 9},
		"always refused":      {many(unauthorized, 30), "", "may have refused it all the time", 9},
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
			if test.evidence != "" {
				f.wantDeleted(t, test.evidence, test.evidence != "is being deleted")
			} else {
				f.wantUnknown(t, test.unknown)
			}
			if len(f.asked) != test.asked {
				t.Errorf("asked %d times, want %d", len(f.asked), test.asked)
			}
		})
	}
}
