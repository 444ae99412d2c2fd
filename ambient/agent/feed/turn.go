// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"sync"
)

// turns let one after the other deal with a pod: of two requests for one pod, the later one must
// not be overtaken by the one before. The zero turns are usable.
type turns struct {
	mu    sync.Mutex
	taken map[string]chan struct{} // by UID; closed when the turn is over
}

// take waits for the turn. The caller ends it with release.
func (t *turns) take(ctx context.Context, uid string) (release func(), err error) {
	for {
		t.mu.Lock()
		former, taken := t.taken[uid]
		if !taken {
			if t.taken == nil {
				t.taken = map[string]chan struct{}{}
			}
			mine := make(chan struct{})
			t.taken[uid] = mine
			t.mu.Unlock()
			return func() { t.end(uid, mine) }, nil
		}
		t.mu.Unlock()
		select {
		case <-former:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (t *turns) end(uid string, mine chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.taken, uid)
	close(mine)
}
