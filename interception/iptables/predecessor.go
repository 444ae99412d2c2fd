// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/handover"
)

var _ handover.Predecessor = (*Dataplane)(nil)

// Remembered reports whether the owner has rules or chains in ns, and which lines are kept with them about what was there before. Where the
// namespace has neither tables of the flavour Legacy nor chains of the owner's, no program is started. With [Dataplane.RemoveRules] it makes a
// predecessor for a dataplane of package nftables, and is for no other use.
func (d *Dataplane) Remembered(ctx context.Context, ns *interception.Netns, owner interception.Owner) ([]string, bool, error) {
	return d.remembered(ctx, ns, owner)
}

// RemoveRules takes the owner's rules and chains, of both flavours, out of ns, with what is remembered in them, and leaves what stands ahead of
// rules: for a dataplane that has taken that over. Use [Dataplane.Remove] otherwise.
func (d *Dataplane) RemoveRules(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.removeRules(ctx, ns, owner)
}
