// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

// TestPodThatIsNotRepaired has repairs in place fail, and a rule that names deletion next.
func TestPodThatIsNotRepaired(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// round says for each attempt whether the namespace is seen.
		round, want []string
	}{
		"each time":               {[]string{"seen", "seen", "seen", "seen", "seen"}, []string{"repair", "repair", "repair", "repair", "delete"}},
		"not seen in between":     {[]string{"seen", "unseen", "seen", "seen", "seen"}, []string{"repair", "repair", "repair", "repair"}},
		"few times in many turns": {[]string{"seen", "unseen", "unseen", "unseen", "seen"}, []string{"repair", "repair"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := &unrepairable{namespaces: newNamespaces(t, "web-0"), round: test.round}
				const rounds = 4
				u.keep(t, rounds)
				if want := slices.Repeat(test.want, rounds); !slices.Equal(u.done, want) {
					t.Errorf("done was %v, want %v", u.done, want)
				}
				if i := slices.Index(u.done, "delete"); i >= 0 && !strings.Contains(u.events[i], "that has failed 4 times, the last time with: no memory") {
					t.Errorf("the event says %q", u.events[i])
				}
			})
		})
	}
}

// unrepairable is a pod that no repair helps, the namespace that it is in, and the API server.
type unrepairable struct {
	*namespaces
	unwilling
	round []string

	mu           sync.Mutex
	looks        int
	done, events []string
}

// keep runs a controller for some rounds.
func (u *unrepairable) keep(t *testing.T, rounds int) {
	t.Helper()
	o := options(repair.ModeRepair, repair.ModeDelete)
	o.Cluster, o.Namespaces, o.ActAtStart, o.Informer = u, u, true, standing{store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	if err := o.Informer.GetStore().Add(brokenObject(t)); err != nil {
		t.Fatal(err)
	}
	c, err := controller.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rounds)*o.Resync-time.Minute)
	defer cancel()
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
}

func (u *unrepairable) Observe(ctx context.Context, p repair.Pod) (repair.Observation, error) {
	u.mu.Lock()
	seen := u.round[u.looks%len(u.round)] == "seen"
	u.looks++
	u.mu.Unlock()
	if !seen {
		return repair.Observation{}, errors.New("its process has just ended")
	}
	return u.namespaces.Observe(ctx, p)
}

func (u *unrepairable) Repair(context.Context, repair.Pod, *interception.Plan) error {
	return errors.Join(u.Do(context.Background(), repair.Action{Do: repair.ModeRepair}), errors.New("no memory"))
}

func (u *unrepairable) Do(_ context.Context, a repair.Action) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.done = append(u.done, string(a.Do))
	return nil
}

func (u *unrepairable) CreateEvent(_ context.Context, e controller.Event) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.events = append(u.events, e.Message)
	return nil
}
