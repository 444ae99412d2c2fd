// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
)

// TestWithdrawTellsOfPodsThatLeaveAtOnce has the agent's loop take a pod out right after the
// withdrawal has begun: the pod is among those that progress is told of, although no look finds it.
func TestWithdrawTellsOfPodsThatLeaveAtOnce(t *testing.T) {
	t.Parallel()
	for name, uids := range map[string][]string{"all": nil, "one": {"web"}} {
		a := &Agent{
			roster: roster.New(), entries: map[string]*entry{}, due: map[*entry]time.Time{},
			nudged: make(chan struct{}, 1), stopped: make(chan struct{}), retired: make(chan struct{}),
		}
		for _, uid := range []string{"web", "other"} {
			a.entries[uid] = newEntry(uid)
			a.entries[uid].state.Namespace, a.entries[uid].state.Name = "shop", uid
		}
		readmits, out, err := a.beginWithdrawal(uids)
		if err != nil {
			t.Fatal(err)
		}
		clear(a.entries)
		left, _, _, err := a.lookAtWithdrawal(readmits, uids, out)
		if err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
		want := map[bool]int{true: 1, false: 2}[len(uids) > 0]
		if len(out) != want || out["web"].Namespace != "shop" || out["web"].Name != "web" {
			t.Errorf("%s: out %v, want %d pods", name, out, want)
		}
	}
}
