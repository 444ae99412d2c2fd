// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"

	"github.com/meshcni/meshcni/interception"
)

// Options are the settings of a [Dataplane]. There is nothing to set yet; the zero value is right.
type Options struct{}

// Dataplane puts plans into nf_tables. [New] makes it. It has no state, and may be used by many goroutines at once.
type Dataplane struct{}

var _ interception.Dataplane = (*Dataplane)(nil)

// New returns a dataplane. It looks at nothing: whether the kernel has what a plan needs shows when the plan is applied. On
// other systems than Linux the error wraps [interception.ErrUnsupported].
func New(Options) (*Dataplane, error) { return newDataplane() }

// Apply makes ns hold exactly p for p's owner, as [interception.Dataplane] says; a plan without objects takes away what
// the owner had. The kernel commits all of it or nothing.
//
// The context is looked at before each transaction. One that the kernel has begun cannot be called back, nor does it wait for
// anybody but the transactions before it; so an error of the context means that this call changed nothing.
//
// The errors are those of [interception.Plan.Validate]; [*interception.ApplyError]; [interception.ErrNotNetns] for a nil
// or zero ns; [interception.ErrUnsupported] with the name of what the kernel does not have. They wrap the kernel's errno, such as
// syscall.EPERM, or syscall.EMSGSIZE for a plan that is larger than this user may send at once (some ten thousand prefixes as
// root of a user namespace; as root of the host there is no such limit). Only an error that says that an answer got lost leaves
// open whether ns holds the old plan or the new one.
func (d *Dataplane) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	if p == nil {
		return errors.New("apply plan: the plan is nil")
	}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("apply plan of %s: %w", p.Owner, err)
	}
	if err := given(ns); err != nil {
		return fmt.Errorf("apply plan of %s: %w", p.Owner, err)
	}
	if len(p.Objects) == 0 {
		return d.Remove(ctx, ns, p.Owner)
	}
	if err := d.apply(ctx, ns, p); err != nil {
		return fmt.Errorf("apply plan of %s to %s: %w", p.Owner, ns, err)
	}
	return nil
}

// Remove takes the owner's table out of ns with all that is in it. It is nil when there is none. The errors are as with
// [Dataplane.Apply].
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

// given refuses a namespace that was not opened. Which namespace it is has been verified by whoever opened it.
func given(ns *interception.Netns) error {
	if ns == nil || ns.File() == nil {
		return fmt.Errorf("no network namespace was given: %w; open one with interception.OpenNetns", interception.ErrNotNetns)
	}
	return nil
}
