// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/interception"
)

// fork gives two agents what one feed tells. The latter may end before the former.
type fork struct {
	feed     agent.Feed
	branches [2]*branch
}

func newFork(feed agent.Feed) *fork {
	f := &fork{feed: feed}
	for i := range f.branches {
		f.branches[i] = &branch{told: make(chan struct{}, 1)}
	}
	return f
}

// run reads the feed until the context ends, or the feed fails.
func (f *fork) run(ctx context.Context) error {
	for {
		change, err := f.feed.Next(ctx)
		if err != nil {
			return err
		}
		for _, b := range f.branches {
			b.add(change)
		}
	}
}

// branch is the feed of one of the agents.
type branch struct {
	told chan struct{} // has a value if there is news

	mu     sync.Mutex
	news   []ambient.Change
	closed bool
}

func (b *branch) add(change ambient.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.news = append(b.news, change)
	signal(b.told)
}

// close drops what the agent does not read any more.
func (b *branch) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.news, b.closed = nil, true
}

// Next implements [agent.Feed].
func (b *branch) Next(ctx context.Context) (ambient.Change, error) {
	for {
		b.mu.Lock()
		if len(b.news) > 0 {
			first := b.news[0]
			b.news = b.news[1:]
			b.mu.Unlock()
			return first, nil
		}
		b.mu.Unlock()
		select {
		case <-b.told:
		case <-ctx.Done():
			return ambient.Change{}, context.Cause(ctx)
		}
	}
}

// signal puts a value into a channel that has room for one.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default: // it has one already
	}
}

// silent writes no status: that is the other agent's.
type silent struct{}

// Annotate implements [agent.Annotator].
func (silent) Annotate(interception.Pod, ambient.Status) {}
