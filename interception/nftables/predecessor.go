// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/handover"
)

var _ handover.Predecessor = (*Dataplane)(nil)

// Remembered reports whether the owner has a table in ns, and which lines are kept in it about what was there before it. With
// [Dataplane.RemoveRules] it makes a predecessor for a dataplane of package iptables, and is for no other use.
func (d *Dataplane) Remembered(ctx context.Context, ns *interception.Netns, owner interception.Owner) ([]string, bool, error) {
	return d.remembered(ctx, ns, owner)
}

// RemoveRules takes the owner's table out of ns, with what it remembers, and leaves what stands ahead of rules: for a dataplane that has
// taken that over. Use [Dataplane.Remove] otherwise.
func (d *Dataplane) RemoveRules(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.removeRules(ctx, ns, owner)
}
