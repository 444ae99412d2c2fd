// SPDX-License-Identifier: Apache-2.0

package interception

import "context"

// Predecessor is a dataplane that may have had an owner's rules before another one: that of package nftables before that of iptables, or the
// other way round. Both mark what stands ahead of rules, such as routes, in the same way, so that only rules and what is remembered with
// them have to change hands.
//
// The methods are called by an Apply or Remove that keeps others out of the namespace, and do not wait for the namespace themselves.
type Predecessor interface {
	// Remembered reports whether the dataplane has rules of owner in ns, and which lines it has kept with them about what was there before.
	Remembered(ctx context.Context, ns *Netns, owner Owner) (lines []string, found bool, err error)
	// RemoveRules takes the owner's rules, and the lines, out of ns, and leaves all else.
	RemoveRules(ctx context.Context, ns *Netns, owner Owner) error
}
