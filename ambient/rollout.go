// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// Rollout applies plans of one owner to several network namespaces that belong together, such as
// the node's and its proxy's, in an order that the caller chooses, and undoes them together.
// [ProxySwitch] returns the one of capture on a node. The zero value does nothing.
type Rollout struct {
	// Owner owns all plans.
	Owner interception.Owner
	// Former are the plans that the namespaces have, for the way back. A namespace without an
	// element has no plan of the owner.
	Former []RolloutStep
	// Steps are the plans to apply, in this order. A namespace may have several steps.
	Steps []RolloutStep
}

// RolloutStep is what a network namespace gets.
type RolloutStep struct {
	// Namespace is the handle for the dataplane, with the labels that the plan needs
	// ([interception.Netns.With]). Handles of the same namespace are told by
	// [interception.Netns.ID].
	Namespace *interception.Netns
	// Plan is the plan; nil removes what the owner has.
	Plan *interception.Plan
}

// Applier changes namespaces. Each [interception.Dataplane] does.
type Applier interface {
	Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error
	Supports(p *interception.Plan) error
	Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error
}

// ErrRollout is wrapped by errors about a [Rollout] that cannot be.
var ErrRollout = errors.New("invalid rollout")

// RolloutError is returned when a step of a [Rollout] failed.
type RolloutError struct {
	// Step is the position of the step in Rollout.Steps, and Namespace is the step's.
	Step      int
	Namespace string
	// Err is the dataplane's error.
	Err error
	// Back has the errors of the way back. It is empty if each namespace has what it had.
	Back []error
}

// Error says which step failed, and what is left.
func (e *RolloutError) Error() string {
	text := fmt.Sprintf("step %d, in %s: %v", e.Step+1, e.Namespace, e.Err)
	if len(e.Back) == 0 {
		return text + " (the earlier steps were undone)"
	}
	return fmt.Sprintf("%s (the earlier steps were not all undone: %v; apply the rollout again)", text, errors.Join(e.Back...))
}

// Unwrap returns the dataplane's errors.
func (e *RolloutError) Unwrap() []error { return append([]error{e.Err}, e.Back...) }

// backTime limits the way back, which goes on when the context has ended.
const backTime = 30 * time.Second

// Apply applies the steps. Before the first it refuses what no dataplane could apply: a namespace
// that is not open, or a plan that the dataplane does not support. If a step fails, Apply gives
// each namespace what it had before its steps, one step after the other in the opposite order, and
// returns a [*RolloutError]. It is idempotent as the dataplane is.
func (r Rollout) Apply(ctx context.Context, d Applier) error {
	if err := r.check(d); err != nil {
		return err
	}
	for i, step := range r.Steps {
		if err := r.put(ctx, d, step); err != nil {
			return &RolloutError{Step: i, Namespace: step.Namespace.String(), Err: err, Back: r.back(ctx, d, i)}
		}
	}
	return nil
}

// Remove removes what the owner has in the namespaces of the steps, the last one's first. It stops
// at the first error: what is left is still complete, as a namespace is removed after those that
// need it. Removing again goes on.
func (r Rollout) Remove(ctx context.Context, d Applier) error {
	removed := map[interception.NetnsID]bool{}
	for _, step := range slices.Backward(r.Steps) {
		if id := step.Namespace.ID(); !removed[id] {
			if err := d.Remove(ctx, step.Namespace, r.Owner); err != nil {
				return fmt.Errorf("remove the plans of %s from %s: %w", r.Owner, step.Namespace, err)
			}
			removed[id] = true
		}
	}
	return nil
}

func (r Rollout) put(ctx context.Context, d Applier, step RolloutStep) error {
	if step.Plan == nil {
		return d.Remove(ctx, step.Namespace, r.Owner)
	}
	return d.Apply(ctx, step.Namespace, step.Plan)
}

// back undoes the steps up to one that failed, which may have been done all the same.
func (r Rollout) back(ctx context.Context, d Applier, failed int) (errs []error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backTime)
	defer cancel()
	for i := failed; i >= 0; i-- {
		before := r.before(i)
		if err := r.put(ctx, d, before); err != nil {
			errs = append(errs, fmt.Errorf("undo step %d, in %s: %w", i+1, before.Namespace, err))
		}
	}
	return errs
}

// before returns what the namespace of a step has before the step.
func (r Rollout) before(i int) RolloutStep {
	ns := r.Steps[i].Namespace
	same := func(s RolloutStep) bool { return s.Namespace.ID() == ns.ID() }
	for _, step := range slices.Backward(r.Steps[:i]) {
		if same(step) {
			return step
		}
	}
	if i := slices.IndexFunc(r.Former, same); i >= 0 {
		return r.Former[i]
	}
	return RolloutStep{Namespace: ns}
}

// check refuses what cannot be applied.
func (r Rollout) check(d Applier) error {
	for i, step := range slices.Concat(r.Steps, r.Former) {
		err := step.Namespace.Check()
		switch {
		case err != nil:
		case step.Plan != nil && step.Plan.Owner != r.Owner:
			err = fmt.Errorf("%w: its plan is of the owner %s, and not of %s", ErrRollout, step.Plan.Owner, r.Owner)
		case step.Plan != nil:
			err = errors.Join(d.Supports(step.Plan), step.Namespace.CheckLabels(step.Plan))
		}
		if err != nil && i < len(r.Steps) {
			return fmt.Errorf("step %d of %d, in %s: %w", i+1, len(r.Steps), step.Namespace, err)
		} else if err != nil {
			return fmt.Errorf("the former plan of %s: %w", step.Namespace, err)
		}
	}
	return nil
}
