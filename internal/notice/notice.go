// SPDX-License-Identifier: Apache-2.0

package notice

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// Changed says where something has changed since the last notice.
type Changed struct {
	// Keys are the keys of the namespaces, sorted.
	Keys []string
	// Lost reports that the kernel has dropped notices, because they came faster than they were
	// read. Anything may have changed in any namespace.
	Lost bool
}

// pending collects what has changed until the caller asks for it.
type pending struct {
	mu      sync.Mutex
	keys    map[string]bool
	lost    bool
	failure error
	ready   chan struct{} // has a value if there is something to take
}

func newPending() *pending { return &pending{keys: map[string]bool{}, ready: make(chan struct{}, 1)} }

// add changes what is pending, and wakes the caller.
func (p *pending) add(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.wake()
}

func (p *pending) wake() {
	select {
	case p.ready <- struct{}{}:
	default: // the caller has not taken the last one yet
	}
}

// next waits for a change or a failure. It returns the cause of a context that ends.
func (p *pending) next(ctx context.Context) (Changed, error) {
	for {
		select {
		case <-p.ready:
		case <-ctx.Done():
			return Changed{}, context.Cause(ctx)
		}
		if changed, err := p.take(); err != nil || changed.Lost || len(changed.Keys) > 0 {
			return changed, err
		}
	}
}

func (p *pending) take() (Changed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil {
		p.wake() // the next call, too
		return Changed{}, p.failure
	}
	changed := Changed{Keys: slices.Sorted(maps.Keys(p.keys)), Lost: p.lost}
	clear(p.keys)
	p.lost = false
	return changed, nil
}
