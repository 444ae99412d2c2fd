// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"
)

// mostYield bounds how long work on a running pod is put off each time.
const mostYield = 10 * time.Millisecond

// rush counts the pods that the plugin waits for. Meanwhile work on pods that run is put off.
type rush struct {
	mu   sync.Mutex
	pods int
	over chan struct{} // closed when there are none any more
}

// begin counts a pod until the caller calls end.
func (r *rush) begin() (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods++; r.pods == 1 {
		r.over = make(chan struct{})
	}
	return r.end
}

func (r *rush) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods--; r.pods == 0 {
		close(r.over)
	}
}

// yield waits until the plugin waits for no pod, or for this one, or as long as it may at most.
func (r *rush) yield(ctx context.Context, came <-chan struct{}) {
	r.mu.Lock()
	pods, over := r.pods, r.over
	r.mu.Unlock()
	if pods == 0 {
		return
	}
	timer := time.NewTimer(mostYield)
	defer timer.Stop()
	select {
	case <-over:
	case <-came:
	case <-timer.C:
	case <-ctx.Done():
	}
}
