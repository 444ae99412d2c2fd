// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/meshcni/meshcni/ambient"
)

// TestTurns has two agents ask for one pod, and then for another one: the second request for a pod
// waits until the first one is done, and delays no other pod.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := newCluster()
		r := cluster.requests()
		server := &Server{options: ServerOptions{Annotator: cluster, Observe: func(Event) {}}}
		answers := make(chan *answer, 3)
		ask := func(uid string, status ambient.Status) {
			pod := named(uid, "shop", "")
			asked := annotation{Namespace: pod.Namespace, Name: pod.Name, UID: uid, Status: status}
			go func() { answers <- (&connection{server: server}).annotate(t.Context(), &asked) }()
			synctest.Wait() // until it cannot go on
		}
		ask("1", ambient.StatusPending)
		r.expect(t, "1", ambient.StatusPending)
		ask("1", ambient.StatusEnabled)
		ask("2", ambient.StatusEnabled)
		r.expect(t, "2", ambient.StatusEnabled)
		select {
		case pod := <-r.calls:
			t.Errorf("pod %s is annotated for two agents at once", pod.UID)
		default:
		}
		r.answers <- nil
		r.answers <- nil
		r.expect(t, "1", ambient.StatusEnabled)
		r.answers <- nil
		for range cap(answers) {
			if got := <-answers; got.Result != resultDone {
				t.Errorf("got %+v", got)
			}
		}
	})
}

// TestTurnsEnd with the cause of the context's end, and the pod's next turn comes all the same.
func TestTurnsEnd(t *testing.T) {
	t.Parallel()
	var all turns
	release, err := all.take(t.Context(), "1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBusy)
	if _, err := all.take(ctx, "1"); !errors.Is(err, errBusy) {
		t.Errorf("while the turn is another's: %v", err)
	}
	release()
	if release, err = all.take(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	release()
	if len(all.taken) != 0 {
		t.Errorf("%d turns are left", len(all.taken))
	}
}
