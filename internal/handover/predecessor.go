// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"fmt"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/route"
)

// Predecessor is a dataplane that may have had an owner's rules before another one had them. Both
// mark what stands ahead of rules, such as routes, in the same way, so that only the rules and what
// is remembered with them change hands.
//
// An Apply or Remove calls the methods while it keeps others out of the namespace. They do not wait
// for the namespace themselves.
type Predecessor interface {
	// Remembered reports whether the dataplane has rules of owner in ns, and which lines it has kept
	// with them about what was there before.
	Remembered(ctx context.Context, ns *interception.Netns, owner interception.Owner) (lines []string, found bool, err error)
	// RemoveRules takes the owner's rules, and the lines, out of ns, and leaves all else.
	RemoveRules(ctx context.Context, ns *interception.Netns, owner interception.Owner) error
}

// Inheritance is what a predecessor has of an owner in a namespace. The zero value is nothing.
type Inheritance struct {
	// Found is whether the predecessor has rules of the owner.
	Found bool
	// Record is what it remembers with them.
	Record route.Record

	remove func(context.Context) error
}

// Ask asks a predecessor what it has of the owner in ns. Where there is no predecessor, that is nothing.
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

// Relieve takes away the rules that the predecessor has, unless it has been done. It is not
// interrupted: other rules stand already, or none shall.
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
