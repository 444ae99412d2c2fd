// SPDX-License-Identifier: Apache-2.0

package choice

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/route"
)

// Dataplane is an [interception.Dataplane] that applies each plan with the first candidate that
// can. It has no state; several goroutines may use it if they may use its candidates. The zero
// Dataplane has no candidates, and refuses every plan.
//
// Where the first candidate can, Dataplane is as fast as it. Later ones find the namespace
// unchanged: an unsupported plan changes nothing.
type Dataplane struct{ candidates []Candidate }

var _ interception.Dataplane = (*Dataplane)(nil)

// New returns a dataplane of candidates, the preferred one first. It returns an error for a
// candidate without a dataplane or a unique name.
func New(candidates ...Candidate) (*Dataplane, error) {
	if err := validate(candidates); err != nil {
		return nil, err
	}
	return &Dataplane{slices.Clone(candidates)}, nil
}

// Apply makes ns hold exactly p for p's owner. It tries the next candidate only after an error that
// wraps [interception.ErrUnsupported]. If all candidates return one, the error is an [*Error] and
// ns is unchanged.
func (d *Dataplane) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	_, err := d.ApplyBy(ctx, ns, p)
	return err
}

// ApplyBy is Apply, and returns the name of the candidate that applied the plan if err is nil.
func (d *Dataplane) ApplyBy(ctx context.Context, ns *interception.Netns, p *interception.Plan) (name string, err error) {
	err = d.first(p, func(c Candidate) error {
		name = c.Name
		return c.Dataplane.Apply(ctx, ns, p)
	})
	return name, err
}

// Supports returns nil if a candidate supports p, and an [*Error] otherwise.
func (d *Dataplane) Supports(p *interception.Plan) error {
	return d.first(p, func(c Candidate) error { return c.Dataplane.Supports(p) })
}

// first returns the first result that does not wrap ErrUnsupported.
func (d *Dataplane) first(p *interception.Plan, ask func(Candidate) error) error {
	if p == nil {
		return p.Validate()
	}
	var rejected []Rejection
	for _, c := range d.candidates {
		err := ask(c)
		if !errors.Is(err, interception.ErrUnsupported) {
			return err
		}
		rejected = append(rejected, Rejection{c.Name, []error{err}})
	}
	return &Error{p.Owner, rejected}
}

// Remove removes everything of owner from ns with each candidate. It ignores candidates that the
// kernel does not support, unless it supports none: they have nothing in ns.
func (d *Dataplane) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.each(func(c Candidate) error { return c.Dataplane.Remove(ctx, ns, owner) })
}

// Observe reads what ns holds for owner with each candidate that the kernel supports, and joins the
// results: tables and sets from each candidate, everything else from the first.
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
		rules := route.RulesOf(&interception.Plan{Objects: one.Objects})
		if len(rules.Objects) == 0 {
			return nil
		}
		if len(route.RulesOf(&interception.Plan{Objects: state.Objects}).Objects) == 0 {
			one.Foreign = append(state.Foreign, one.Foreign...)
			state = one
			return nil
		}
		state.Objects, state.Deviations = append(state.Objects, rules.Objects...), append(state.Deviations, one.Deviations...)
		if one.Owners != nil {
			maps.Copy(one.Owners, state.Owners)
			state.Owners = one.Owners
		}
		return nil
	})
	return state, err
}

// HasFormer reports whether ns holds rules of owner that a candidate after the first one has
// written: others were preferred then, or the first could not apply the plan. Apply moves the rules
// to the first candidate that can apply them, if that one has the others as its predecessors.
func (d *Dataplane) HasFormer(ctx context.Context, ns *interception.Netns, owner interception.Owner) (bool, error) {
	for _, c := range d.candidates[1:] {
		state, err := c.Dataplane.Observe(ctx, ns, owner)
		if errors.Is(err, interception.ErrUnsupported) {
			continue // it has nothing there
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", c.Name, err)
		}
		if len(route.RulesOf(&interception.Plan{Objects: state.Objects}).Objects) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// UpdateSet changes the members of a live set of addresses with the candidate that holds it, as
// [interception.SetEdit] says. The error wraps [interception.ErrUnsupported] if no candidate can
// hold such sets, and never both that and [fs.ErrNotExist].
func (d *Dataplane) UpdateSet(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit,
) error {
	var absent, unsupported []error
	for _, c := range d.candidates {
		editor, ok := c.Dataplane.(interface {
			UpdateSet(context.Context, *interception.Netns, interception.Owner, interception.SetName, interception.SetEdit) error
		})
		if !ok {
			unsupported = append(unsupported, fmt.Errorf("%s: live sets of addresses: %w", c.Name, interception.ErrUnsupported))
			continue
		}
		switch err := editor.UpdateSet(ctx, ns, owner, set, edit); {
		case errors.Is(err, interception.ErrUnsupported):
			unsupported = append(unsupported, fmt.Errorf("%s: %w", c.Name, err))
		case errors.Is(err, fs.ErrNotExist):
			absent = append(absent, fmt.Errorf("%s: %w", c.Name, err))
		default:
			return err
		}
	}
	if absent == nil {
		return errors.Join(unsupported...)
	}
	return errors.Join(absent...)
}

// Tally returns the first candidate's count of what the owner has in ns, as package iptables
// describes it. The count is empty if the first candidate has no method Tally: the dataplane of
// package nftables needs none, since the kernel sends a notice of each change. Tally does not count
// rules that a later candidate wrote because the first one could not.
func (d *Dataplane) Tally(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, sets ...interception.SetName,
) (string, error) {
	if len(d.candidates) == 0 {
		return "", validate(d.candidates)
	}
	first := d.candidates[0]
	tallier, is := first.Dataplane.(interface {
		Tally(context.Context, *interception.Netns, interception.Owner, ...interception.SetName) (string, error)
	})
	if !is {
		return "", nil
	}
	tally, err := tallier.Tally(ctx, ns, owner, sets...)
	if err != nil {
		return "", fmt.Errorf("%s: %w", first.Name, err)
	}
	return tally, nil
}

// Claim makes the routes and policy rules that serve the owner's plan the owner's, as those
// candidates do that can.
func (d *Dataplane) Claim(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.each(func(c Candidate) error {
		claimer, ok := c.Dataplane.(interface {
			Claim(context.Context, *interception.Netns, interception.Owner) error
		})
		if !ok {
			return fmt.Errorf("claim: %w", interception.ErrUnsupported)
		}
		return claimer.Claim(ctx, ns, owner)
	})
}

// each asks all candidates and joins their errors. It ignores those that wrap ErrUnsupported,
// unless all candidates return one.
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
	if len(d.candidates) == 0 {
		return validate(d.candidates)
	}
	if len(unsupported) == len(d.candidates) {
		return errors.Join(unsupported...)
	}
	return errors.Join(errs...)
}
