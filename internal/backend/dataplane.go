// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"fmt"
	"os"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/route"
)

// Dataplane has the methods of a [Successor] over a backend's rules, except Supports, which the
// backend has itself. [Dataplane.Heritage] returns those of a [Predecessor].
type Dataplane struct {
	// Open returns the owner's rules in a namespace, and what closes them. It reads nothing of the
	// owner yet.
	Open func(ns *interception.Netns, owner interception.Owner) (_ Rules, closeRules func(), _ error)
	// Create, unless it is nil, applies a plan of rules alone to a namespace that has nothing of
	// the owner. It takes no lock. It reports false, without an error, if the owner has something,
	// or if it is unknown what the kernel has done: the plan is then applied under the lock.
	Create func(ctx context.Context, ns *interception.Netns, p *interception.Plan) (bool, error)
	// Edit edits a live set of single addresses, as [interception.SetEdit] says, for a caller that
	// holds the namespace's lock. It is nil for a backend without such sets.
	Edit func(ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit) error
	// Supports is the backend's [interception.Dataplane.Supports].
	Supports func(p *interception.Plan) error
	// Kernel gives access to a namespace, for what precedes the rules: kernel.Of except in tests.
	Kernel func(in *os.File) kernel.Namespace
	// Protocols are the owners' protocol numbers.
	Protocols route.Protocols
	// Predecessors are other dataplanes that may have rules of the same owners.
	Predecessors []Predecessor
}

// Apply makes ns hold exactly p for p's owner. A plan without objects removes what the owner had.
func (d *Dataplane) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	if p == nil {
		return fmt.Errorf("apply plan: %w", p.Validate())
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
	if err := ns.CheckLabels(p); err != nil {
		return fmt.Errorf("apply plan of %s to %s: %w", p.Owner, ns, err)
	}
	if err := d.apply(ctx, ns, p); err != nil {
		return fmt.Errorf("apply plan of %s to %s: %w", p.Owner, ns, err)
	}
	return nil
}

// Remove removes everything of owner from ns.
func (d *Dataplane) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	if err := owner.Validate(); err != nil {
		return fmt.Errorf("remove plan: %w", err)
	}
	if err := given(ns); err != nil {
		return fmt.Errorf("remove plan of %s: %w", owner, err)
	}
	if err := d.remove(ctx, ns, owner); err != nil {
		return fmt.Errorf("remove plan of %s from %s: %w", owner, ns, err)
	}
	return nil
}

// Claim makes the routes and policy rules that serve the owner's plan, and are other programs', the
// owner's, so that Remove removes them.
func (d *Dataplane) Claim(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	if err := owner.Validate(); err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	if err := given(ns); err != nil {
		return fmt.Errorf("claim what serves the plan of %s: %w", owner, err)
	}
	if err := d.claim(ctx, ns, owner); err != nil {
		return fmt.Errorf("claim what serves the plan of %s in %s: %w", owner, ns, err)
	}
	return nil
}

// Observe returns what ns holds of owner. After an error the state is the zero one.
func (d *Dataplane) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	if err := owner.Validate(); err != nil {
		return interception.State{}, fmt.Errorf("observe: %w", err)
	}
	if err := given(ns); err != nil {
		return interception.State{}, fmt.Errorf("observe what %s has: %w", owner, err)
	}
	state, err := d.observe(ctx, ns, owner)
	if err != nil {
		return interception.State{}, fmt.Errorf("observe what %s has in %s: %w", owner, ns, err)
	}
	return state, nil
}

// given refuses a namespace that is not open, and a stand-in. That it is not the host's was
// verified when it was opened.
func given(ns *interception.Netns) error {
	if err := ns.Check(); err != nil {
		return err
	}
	if ns.File() == nil {
		return fmt.Errorf("%s: %w; open one with interception.OpenNetns", ns, interception.ErrNotNetns)
	}
	return nil
}

// Rules are one owner's rules in a network namespace as a backend keeps them, and with them the
// record of the state before. They serve one call of a dataplane. A method that finds its context
// ended changes nothing.
//
// Look comes first, and the other methods rely on what it has found. After an error of Write or
// Remember the rules and the record are as they were before the call. An error that wraps
// unix.ERESTART means that another program has changed rules since Look: the caller starts again.
type Rules interface {
	// Look reads what the namespace holds.
	Look(ctx context.Context) (Standing, error)
	// Write replaces the rules by those of p, and the record. It changes nothing if both are in
	// place. A plan without objects has no rules; if the record is empty, too, nothing is left.
	Write(ctx context.Context, p *interception.Plan, record route.Record) error
	// Remember replaces the record, and leaves the rules as they are.
	Remember(ctx context.Context, record route.Record) error
	// Observe adds the rules to a state that has all other objects.
	Observe(ctx context.Context, state *interception.State) error
}

// Standing is what [Rules] found.
type Standing struct {
	// Found reports whether there is anything: rules, chains or a record.
	Found bool
	// Record is what is remembered with the rules.
	Record route.Record
	// Shared is an error if another owner has the same protocol number, as in [route.Options].
	Shared error
	// Blocked is an error if nothing can be written.
	Blocked error
}
