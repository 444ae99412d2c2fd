// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"

	"github.com/meshcni/meshcni/interception"
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
