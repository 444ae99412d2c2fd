// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Dataplane is an [interception.Dataplane] that has each plan applied by the first of some candidates that can. It has no state, and may be
// used by many goroutines at once when they may. [New] makes it.
//
// Where the first can, as nearly everywhere, it is as fast as that one. One that is asked behind another finds the namespace as it was:
// a dataplane changes nothing when it says that something is not supported.
type Dataplane struct{ candidates []Candidate }

var _ interception.Dataplane = (*Dataplane)(nil)

// New returns a dataplane of candidates, the preferred first. The error is about candidates without a dataplane or a name of their own.
func New(candidates ...Candidate) (*Dataplane, error) {
	if err := validate(candidates); err != nil {
		return nil, err
	}
	return &Dataplane{slices.Clone(candidates)}, nil
}

// Apply makes ns hold exactly p for p's owner. Only a candidate whose error wraps [interception.ErrUnsupported] is followed by the next one;
// when all are, the error is an [*Error], and ns is as it was.
func (d *Dataplane) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	_, err := d.ApplyBy(ctx, ns, p)
	return err
}

// ApplyBy is Apply, and says which candidate has applied the plan; without an error only.
func (d *Dataplane) ApplyBy(ctx context.Context, ns *interception.Netns, p *interception.Plan) (name string, err error) {
	err = d.first(p, func(c Candidate) error {
		name = c.Name
		return c.Dataplane.Apply(ctx, ns, p)
	})
	return name, err
}

// Supports is nil when a candidate supports p; otherwise it is an [*Error].
func (d *Dataplane) Supports(p *interception.Plan) error {
	return d.first(p, func(c Candidate) error { return c.Dataplane.Supports(p) })
}

// first is the first answer that is not that something is unsupported.
func (d *Dataplane) first(p *interception.Plan, ask func(Candidate) error) error {
	var rejected []Rejection
	for _, c := range d.candidates {
		err := ask(c)
		if !errors.Is(err, interception.ErrUnsupported) {
			return err
		}
		rejected = append(rejected, Rejection{c.Name, []error{err}})
	}
	return &Error{p.Owner, rejected} // a nil plan is refused by the first
}

// Remove has each candidate take everything of owner out of ns. One that the kernel does not support has nothing there, unless it is
// the only one.
func (d *Dataplane) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.each(func(c Candidate) error { return c.Dataplane.Remove(ctx, ns, owner) })
}

// Observe reads what ns holds of owner by each candidate that the kernel supports, and joins it: what stands in tables and sets as each
// says, all else as the first does.
func (d *Dataplane) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	var state interception.State
	first := true
	err := d.each(func(c Candidate) error {
		one, err := c.Dataplane.Observe(ctx, ns, owner)
		if err != nil {
			return err
		}
		if first {
			state, first = one, false
			return nil
		}
		rules := rulesOf(&interception.Plan{Objects: one.Objects})
		if len(rules.Objects) == 0 {
			return nil
		}
		if len(rulesOf(&interception.Plan{Objects: state.Objects}).Objects) == 0 {
			one.Foreign = append(state.Foreign, one.Foreign...)
			state = one
			return nil
		}
		state.Objects, state.Deviations = append(state.Objects, rules.Objects...), append(state.Deviations, one.Deviations...)
		return nil
	})
	return state, err
}

// each asks all candidates, and returns all errors but those that something is not supported, when another one has no error.
func (d *Dataplane) each(ask func(Candidate) error) error {
	var errs, unsupported []error
	for _, c := range d.candidates {
		err := ask(c)
		switch {
		case errors.Is(err, interception.ErrUnsupported):
			unsupported = append(unsupported, fmt.Errorf("%s: %w", c.Name, err))
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", c.Name, err))
		}
	}
	if len(unsupported) == len(d.candidates) {
		return errors.Join(unsupported...)
	}
	return errors.Join(errs...)
}
