// SPDX-License-Identifier: Apache-2.0

package request

import (
	"context"
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// Apply calls apply if p and ns are valid and d supports p. A plan without objects goes to
// d.Remove.
func Apply(
	ctx context.Context, ns *interception.Netns, p *interception.Plan, d interception.Dataplane,
	apply func(context.Context, *interception.Netns, *interception.Plan) error,
) error {
	if p == nil {
		return errors.New("apply plan: the plan is nil")
	}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("apply plan of %s: %w", p.Owner, err)
	}
	if err := given(ns); err != nil {
		return fmt.Errorf("apply plan of %s: %w", p.Owner, err)
	}
	if err := d.Supports(p); err != nil {
		return fmt.Errorf("apply %w", err)
	}
	if len(p.Objects) == 0 {
		return d.Remove(ctx, ns, p.Owner)
	}
	if err := apply(ctx, ns, p); err != nil {
		return fmt.Errorf("apply plan of %s to %s: %w", p.Owner, ns, err)
	}
	return nil
}

// Remove calls remove for ns and owner when both are valid.
func Remove(
	ctx context.Context, ns *interception.Netns, owner interception.Owner,
	remove func(context.Context, *interception.Netns, interception.Owner) error,
) error {
	if err := owner.Validate(); err != nil {
		return fmt.Errorf("remove plan: %w", err)
	}
	if err := given(ns); err != nil {
		return fmt.Errorf("remove plan of %s: %w", owner, err)
	}
	if err := remove(ctx, ns, owner); err != nil {
		return fmt.Errorf("remove plan of %s from %s: %w", owner, ns, err)
	}
	return nil
}

// Observe calls observe if ns and owner are valid. After an error the state is the zero one.
func Observe(
	ctx context.Context, ns *interception.Netns, owner interception.Owner,
	observe func(context.Context, *interception.Netns, interception.Owner) (interception.State, error),
) (interception.State, error) {
	if err := owner.Validate(); err != nil {
		return interception.State{}, fmt.Errorf("observe: %w", err)
	}
	if err := given(ns); err != nil {
		return interception.State{}, fmt.Errorf("observe what %s has: %w", owner, err)
	}
	state, err := observe(ctx, ns, owner)
	if err != nil {
		return interception.State{}, fmt.Errorf("observe what %s has in %s: %w", owner, ns, err)
	}
	return state, nil
}

// given refuses a namespace that is not open, or a stand-in. Opening it has verified which it is.
func given(ns *interception.Netns) error {
	if err := ns.Check(); err != nil {
		return err
	}
	if ns.File() == nil {
		return fmt.Errorf("%s: %w; open one with interception.OpenNetns", ns, interception.ErrNotNetns)
	}
	return nil
}
