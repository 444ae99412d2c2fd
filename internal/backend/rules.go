// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/route"
)

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
