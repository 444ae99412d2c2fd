// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/route"
)

// Predecessor is a dataplane that may have installed an owner's rules earlier. Both dataplanes mark
// what precedes the rules, such as routes, in the same way, so only the rules and the record kept
// with them change hands.
//
// Apply and Remove hold the namespace's lock when they call RemoveRules, and may hold it when they
// call Remembered. The methods do not take the lock themselves.
type Predecessor interface {
	// Remembered reports whether the dataplane has rules of owner in ns. It returns the lines that
	// it has kept with them about the state before.
	Remembered(ctx context.Context, ns *interception.Netns, owner interception.Owner) (lines []string, found bool, err error)
	// RemoveRules removes the owner's rules and the lines from ns, and leaves everything else.
	RemoveRules(ctx context.Context, ns *interception.Netns, owner interception.Owner) error
}

// Inheritance is what a predecessor has of an owner in a namespace. The zero value is nothing.
type Inheritance struct {
	// Found reports whether the predecessor has rules of the owner.
	Found bool
	// Record is what the predecessor remembers with them.
	Record route.Record

	remove func(context.Context) error
}

// Ask returns what predecessor p has of the owner in ns. A nil p has nothing.
func Ask(ctx context.Context, p Predecessor, ns *interception.Netns, owner interception.Owner) (Inheritance, error) {
	if p == nil {
		return Inheritance{}, nil
	}
	lines, found, err := p.Remembered(ctx, ns, owner)
	if err != nil {
		return Inheritance{}, fmt.Errorf("look for rules of another dataplane: %w", err)
	}
	if !found {
		return Inheritance{}, nil
	}
	record, err := route.ParseRecord(lines)
	if err != nil {
		return Inheritance{}, fmt.Errorf("rules of another dataplane: %w", err)
	}
	return Inheritance{true, record, func(ctx context.Context) error { return p.RemoveRules(ctx, ns, owner) }}, nil
}

// Relieve removes the predecessor's rules unless that is done already. It ignores the end of the
// context: by then other rules are in place, or no rules are wanted.
func (i *Inheritance) Relieve(ctx context.Context) error {
	if !i.Found {
		return nil
	}
	if err := i.remove(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("rules of another dataplane are left: %w", err)
	}
	i.Found = false
	return nil
}
