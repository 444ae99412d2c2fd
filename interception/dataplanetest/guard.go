// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"context"
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// guard is a dataplane whose panics fail the current test and become errors of the call, so that
// the other laws are still tested.
type guard struct {
	interception.Dataplane

	t testing.TB
}

// guarded returns a function that opens guarded dataplanes.
func guarded(open func(t testing.TB) interception.Dataplane) func(t testing.TB) interception.Dataplane {
	return func(t testing.TB) interception.Dataplane {
		t.Helper()
		return guard{open(t), t}
	}
}

// caught ends a panic of a method; use it with defer.
func (g guard) caught(method string, err *error) {
	g.t.Helper()
	if reason := recover(); reason != nil {
		*err = fmt.Errorf("%s panicked: %v", method, reason)
		g.t.Errorf("%v\n%s", *err, debug.Stack())
	}
}

func (g guard) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) (err error) {
	defer g.caught("Apply", &err)
	return g.Dataplane.Apply(ctx, ns, p)
}

func (g guard) Supports(p *interception.Plan) (err error) {
	defer g.caught("Supports", &err)
	return g.Dataplane.Supports(p)
}

func (g guard) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) (err error) {
	defer g.caught("Remove", &err)
	return g.Dataplane.Remove(ctx, ns, owner)
}

// setEditor is what a dataplane with live sets of addresses has (see [interception.SetEdit]).
type setEditor interface {
	UpdateSet(context.Context, *interception.Netns, interception.Owner, interception.SetName, interception.SetEdit) error
}

// UpdateSet returns an error that wraps [interception.ErrUnsupported] if the dataplane has no such
// method.
func (g guard) UpdateSet(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit,
) (err error) {
	defer g.caught("UpdateSet", &err)
	if editor, ok := g.Dataplane.(setEditor); ok {
		return editor.UpdateSet(ctx, ns, owner, set, edit)
	}
	return fmt.Errorf("the dataplane has no method UpdateSet as interception.SetEdit has it: %w", interception.ErrUnsupported)
}

func (g guard) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (state interception.State, err error) {
	defer g.caught("Observe", &err)
	return g.Dataplane.Observe(ctx, ns, owner)
}
