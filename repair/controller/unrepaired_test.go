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
		"each time":               {[]string{"seen", "seen", "seen", "seen", "seen"}, []string{"repair", "repair", "repair", "repair", "delete", "delete", "delete"}},
		"not seen in between":     {[]string{"seen", "unseen", "seen", "seen", "seen"}, []string{"repair", "repair", "repair", "repair", "delete", "delete"}},
		"few times in many turns": {[]string{"seen", "unseen", "unseen", "unseen", "seen"}, []string{"repair", "repair", "repair", "repair", "delete"}},
		"restored in between":     {[]string{"seen", "seen", "fine", "seen", "seen"}, slices.Repeat([]string{"repair"}, 10)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				u := &unrepairable{namespaces: newNamespaces(t, "web-0"), round: test.round}
				u.keep(t, 3)
				if !slices.Equal(u.done, test.want) {
					t.Errorf("done was %v, want %v", u.done, test.want)
				}
				says := func(event string) bool {
					return strings.Contains(event, "that has failed 4 times, the last time with: no memory")
				}
				if deleted := slices.Contains(test.want, "delete"); slices.ContainsFunc(u.events, says) != deleted {
					t.Errorf("deleted %t, and the events are %q", deleted, u.events)
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
	now := u.round[u.looks%len(u.round)]
	u.looks++
	u.mu.Unlock()
	if now == "unseen" {
		return repair.Observation{}, errors.New("its process has just ended")
	}
	u.change(func() { u.lost[p.Name] = now == "seen" })
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
