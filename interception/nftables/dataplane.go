// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/handover"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/request"
	"github.com/meshcni/meshcni/internal/route"
)

// Options are the settings of a [Dataplane]. The zero value is right unless two owners share a protocol number.
type Options struct {
	// Protocols are the protocol numbers that the routes, policy rules and addresses of owners carry (rtm_protocol, FRA_PROTOCOL,
	// IFA_PROTO), where they are not to be those that follow from the owners' names: 200 to 253, as everybody else's are below 200. Two
	// owners in one namespace need different ones. Whoever takes a plan away must know the number that it was applied with.
	Protocols map[interception.Owner]uint8
	// Foreign has Observe also read the chains of all other tables of nf_tables whose families IP packets meet (ip, ip6, inet, netdev),
	// with their hooks, priorities and policies, into [interception.State.Foreign]: others' chains change outcomes, too. A dormant table is
	// left out. What iptables-legacy has is not in nf_tables, and is not seen.
	Foreign bool
	// Predecessor is a dataplane that may have had rules of the same owners in the same namespaces. Apply takes them away when the plan's own
	// stand, and Remove with the others. nil stands for none: what another dataplane has is then left alone.
	Predecessor handover.Predecessor
}

// Dataplane puts plans into nf_tables. [New] makes it. It has no state, and may be used by many goroutines at once.
type Dataplane struct {
	protocols route.Protocols
	open      func(in *os.File) kernel.Namespace
	foreign   bool

	predecessor handover.Predecessor
}

var _ interception.Dataplane = (*Dataplane)(nil)

// New returns a dataplane. It looks at nothing: whether the kernel has what a plan needs shows when the plan is applied. On
// other systems than Linux the error wraps [interception.ErrUnsupported].
func New(o Options) (*Dataplane, error) {
	protocols := route.Protocols(maps.Clone(o.Protocols))
	if err := protocols.Validate(); err != nil {
		return nil, err
	}
	return newDataplane(&Dataplane{protocols: protocols, foreign: o.Foreign, predecessor: o.Predecessor})
}

// Supports reports what of a plan nf_tables cannot do on any kernel that this package is for: nil, or an error that names each such part
// and wraps [interception.ErrUnsupported]. What only some kernels lack shows when the plan is applied.
func (d *Dataplane) Supports(p *interception.Plan) error {
	if p == nil {
		return errors.New("the plan is nil")
	}
	if err := supports(p); err != nil {
		return fmt.Errorf("plan of %s: %w", p.Owner, err)
	}
	return nil
}

// Apply makes ns hold exactly p for p's owner, as [interception.Dataplane] says; a plan without objects takes away what
// the owner had. The kernel commits all sets and rules or none; what comes before them is taken back when they are refused, and
// what the owner had of it and the plan has not is taken away behind them. An address that is there already stays whose it is; any other
// object of somebody else in the place of one of the plan is an error before anything is written.
//
// The context is looked at before each step. One that the kernel has begun cannot be called back, nor does it wait for
// anybody but the transactions before it; so an error of the context means that this call changed nothing.
//
// The errors are those of [interception.Plan.Validate]; [*interception.ApplyError]; [interception.ErrNotNetns] for a nil
// or zero ns; [interception.ErrUnsupported] with the name of what the kernel does not have. They wrap the kernel's errno, such as
// syscall.EPERM, or syscall.EMSGSIZE for a plan that is larger than this user may send at once (some ten thousand prefixes as
// root of a user namespace; as root of the host there is no such limit). Behind an error ns holds what it held before, unless the
// error says that the plan stands, and what of the one before is left: that has been tried twice. When the kernel loses an answer for lack of
// memory, what became of the question is looked up; only when that fails, too, it stays open.
func (d *Dataplane) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	return request.Apply(ctx, ns, p, d, d.apply)
}

// Remove takes the owner's rules out of ns and then, in the reverse order of plans, policy rules, routes, addresses and links that carry
// its mark; sysctls get the values back that they had before, unless somebody else has set them since. It is nil when there is nothing.
// The errors are as with [Dataplane.Apply].
func (d *Dataplane) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return request.Remove(ctx, ns, owner, d.remove)
}

// Observe decodes what the kernel holds of owner in ns, as [interception.Dataplane] says: the table named after the owner, and the links,
// addresses, sysctls, routes and policy rules that carry its mark or stand in its ledger. All of the rules is of one moment: it is read
// anew when anybody changes rules meanwhile. It takes the privileges of Apply. Counters are passed over, as they decide nothing.
func (d *Dataplane) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	return request.Observe(ctx, ns, owner, d.observe)
}

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
