// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// Chooser tells whether an owner's rules stand where its other dataplanes write them, and not the
// one that it prefers. [github.com/meshcni/meshcni/interception/choice.Dataplane] does.
type Chooser interface {
	HasFormer(ctx context.Context, ns *interception.Netns, owner interception.Owner) (bool, error)
}

// move has the plan of a pod that is as wanted written anew if it stands where another dataplane
// has written it: the node prefers another one than when the pod was enrolled. The new rules come
// before the former ones go. Once the dataplane has written something, there is nothing to move.
func (w *worker) move(ctx context.Context) error {
	if w.moved {
		return nil
	}
	o := &w.agent.options
	former, err := o.hasFormer(ctx, w.namespace)
	if err == nil && former {
		err = o.Dataplane.Apply(ctx, w.namespace, w.plan)
	}
	if err != nil {
		return fmt.Errorf("replace the rules that another dataplane has written: %w", err)
	}
	w.moved = true
	return nil
}

// hasFormer reports whether the rules in a namespace stand where another dataplane has written
// them.
func (o *Options) hasFormer(ctx context.Context, in *interception.Netns) (bool, error) {
	chooser, is := o.Dataplane.(Chooser)
	if !is {
		return false, nil
	}
	return chooser.HasFormer(ctx, in, o.Owner)
}
