// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/interception"
)

// fork gives two agents what one feed tells. It reads on once both have read: a feed keeps no more
// than the last change of each pod. The latter agent may end before the former.
type fork struct {
	feed     agent.Feed
	branches [2]*branch
}

func newFork(feed agent.Feed) *fork {
	f := &fork{feed: feed}
	for i := range f.branches {
		f.branches[i] = &branch{make(chan ambient.Change), make(chan struct{})}
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
			select {
			case b.changes <- change:
			case <-b.closed:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// branch is the feed of one of the agents. Closed is closed when the agent has ended.
type branch struct {
	changes chan ambient.Change
	closed  chan struct{}
}

// Next implements [agent.Feed].
func (b *branch) Next(ctx context.Context) (ambient.Change, error) {
	select {
	case change := <-b.changes:
		return change, nil
	case <-ctx.Done():
		return ambient.Change{}, context.Cause(ctx)
	}
}

// silent writes no status: that is the other agent's.
type silent struct{}

// Annotate implements [agent.Annotator].
func (silent) Annotate(interception.Pod, ambient.Status) {}
