// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// Tallier counts those things of the owner in a namespace whose changes the kernel does not
// announce: rules, and members of the named sets, as far as these exist. Different results mean a
// change, and "" that there is nothing of the kind. The dataplanes of packages iptables and choice
// do.
type Tallier interface {
	Tally(ctx context.Context, ns *interception.Netns, owner interception.Owner, sets ...interception.SetName) (string, error)
}

// ErrUncounted means that a [Tallier] has failed. The host's rules stand, and what other programs
// change is found in the next round at the latest.
var ErrUncounted = errors.New("what other programs change on the host may go unnoticed")

// counter returns what counts the rules and members of which the kernel sends no notice; nil if the
// dataplane cannot count.
func (s *sets) counter() func(context.Context) (string, error) {
	o := s.options
	tallier, is := o.Dataplane.(Tallier)
	if !is {
		return nil
	}
	return func(ctx context.Context) (string, error) {
		return tallier.Tally(ctx, o.Host, o.Owner, ambient.ProbeSet(interception.IPv4), ambient.ProbeSet(interception.IPv6))
	}
}

// unnoticed says what a failed count means.
func (s *sets) unnoticed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w for %s: %w", ErrUncounted, s.options.Round, err)
}
