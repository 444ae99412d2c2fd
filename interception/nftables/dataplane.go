// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/backend"
	"github.com/meshcni/meshcni/internal/route"
)

// Options are the settings of a [Dataplane]. The zero value is right unless two owners share a
// protocol number.
type Options struct {
	// Protocols are the protocol numbers that the routes, policy rules and addresses of owners
	// carry (rtm_protocol, FRA_PROTOCOL, IFA_PROTO) instead of those that follow from the owners'
	// names. They are 200 to 253, as other programs use numbers below 200. Two owners in one
	// namespace need different numbers. Removing a plan requires the number that it was applied
	// with.
	Protocols map[interception.Owner]uint8
	// Foreign makes Observe also read the chains of all other nf_tables tables whose families IP
	// packets meet (ip, ip6, inet, netdev), with their hooks, priorities and policies, into
	// [interception.State.Foreign]: these chains change outcomes, too. Dormant tables are left out.
	// The rules of iptables-legacy are not in nf_tables, and are not read.
	Foreign bool
	// Predecessors are dataplanes that may have rules of the same owners in the same namespaces.
	// Apply removes these once the plan's own rules are in place, and Remove together with the
	// others. The rules of dataplanes that are not in the list are left alone. Package
	// choice/standard fills in the list. A program without it lists the other package's dataplane;
	// New refuses a dataplane of another module.
	Predecessors []interception.Dataplane
}

// Dataplane puts plans into nf_tables. It has no state, and many goroutines may use it at once.
type Dataplane struct {
	heritage
	backend backend.Dataplane
	foreign bool
}

// heritage is for dataplanes that take over.
type heritage = backend.Heritage

var _ backend.Successor = (*Dataplane)(nil)

// New returns a dataplane. It does not look at the kernel: what is missing shows when a plan is
// applied. On systems other than Linux the error wraps [interception.ErrUnsupported].
func New(o Options) (*Dataplane, error) {
	protocols := route.Protocols(maps.Clone(o.Protocols))
	if err := protocols.Validate(); err != nil {
		return nil, err
	}
	predecessors, err := backend.Predecessors(o.Predecessors)
	if err != nil {
		return nil, err
	}
	return newDataplane(&Dataplane{
		backend: backend.Dataplane{Protocols: protocols, Predecessors: predecessors}, foreign: o.Foreign,
	})
}

// Supports reports which parts of a plan nf_tables cannot do on any kernel that this package is
// for: it returns nil, or an error that names each such part and wraps
// [interception.ErrUnsupported]. What only some kernels lack shows when the plan is applied.
func (d *Dataplane) Supports(p *interception.Plan) error {
	if p == nil {
		return p.Validate() // it is never valid
	}
	if err := supports(p); err != nil {
		return fmt.Errorf("plan of %s: %w", p.Owner, err)
	}
	return nil
}

// Apply makes ns hold exactly p for p's owner, as [interception.Dataplane] specifies; a plan
// without objects removes what the owner had. The kernel commits all sets and rules or none.
// Objects that precede them are undone when they are refused; those that the owner had and the plan
// lacks are removed after the commit. An address, a route or a policy rule of another program that
// is the same as the plan's keeps its owner; any other object in the place of one of the plan's is
// an error before anything is written.
//
// The kernel replaces all rules at once. A packet that the pod sends to itself may be on its way
// from Output to Prerouting at that moment, with a mark of the old plan. If the new plan has
// another mark for TPROXY, the connection that this packet opens bypasses the proxy.
//
// Apply checks the context before each step. A step that the kernel has begun cannot be cancelled,
// and it waits for nothing but earlier transactions; so an error of the context means that this
// call changed nothing.
//
// The errors are those of [interception.Plan.Validate]; [*interception.ApplyError];
// [interception.ErrNotNetns] for a nil or zero ns; [interception.ErrUnsupported] with the name of
// what the kernel lacks. They wrap the kernel's errno, such as syscall.EPERM, or syscall.EMSGSIZE
// for a plan that is larger than this user may send at once (some ten thousand prefixes as root of
// a user namespace; there is no such limit for the host's root). After an error ns holds what it
// held before, unless the error reports that the plan is in place and what is left of the previous
// plan: removing that has been tried twice. When the kernel loses an answer for lack of memory,
// Apply checks what was done; the outcome is unknown only when that fails, too.
func (d *Dataplane) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	return d.backend.Apply(ctx, ns, p)
}

// Remove removes the owner's rules from ns and then, in the reverse order of plans, policy rules,
// routes, addresses and links that carry its mark. Sysctls get their former values back, unless
// another program has set them since. Remove returns nil when there is nothing to remove. The
// errors are those of [Dataplane.Apply].
func (d *Dataplane) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.backend.Remove(ctx, ns, owner)
}

// Observe decodes what the kernel holds of owner in ns, as [interception.Dataplane] specifies: the
// table named after the owner, and the links, addresses, sysctls, routes and policy rules that
// carry its mark or are in its ledger. All rules come from one moment: Observe reads them again
// when another program changes rules meanwhile. It needs the privileges of Apply. It ignores
// counters, as they decide nothing.
func (d *Dataplane) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	return d.backend.Observe(ctx, ns, owner)
}

// UpdateSet changes the members of a live set of addresses of the owner in ns, as
// [interception.SetEdit] says: in one transaction, and again if another transaction was first. It
// leaves everything else alone, and needs the privileges of Apply. After an error of the context
// the members are the old ones, unless the error says that the outcome is unknown: then they may be
// the new ones.
func (d *Dataplane) UpdateSet(
	ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit,
) error {
	err := errors.Join(ns.Check(), owner.Validate(), set.Validate())
	if err == nil {
		err = d.updateSet(ctx, ns, owner, set, edit)
	}
	if err != nil {
		return fmt.Errorf("edit set %s of %s in %s: %w", set, owner, ns, err)
	}
	return nil
}

// Claim makes the routes and policy rules that serve the owner's plan in ns, and that another
// program has put there, the owner's: for a program that takes over from that one. Each is there at
// every moment, and Remove then removes it. The owner's rules stay as they are. Without such routes
// and rules Claim returns nil. After an error some may be claimed, and Claim can be repeated.
func (d *Dataplane) Claim(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	return d.backend.Claim(ctx, ns, owner)
}

// RemoveForeign removes the tables of another program whose chains are these, as Observe has
// returned them in [interception.State].Foreign: for a program that takes over what another one
// did, once its own plan is in place. All tables go in one transaction. If one of them is gone, or
// has other chains or rules than before, none is removed, and the error names it.
func (d *Dataplane) RemoveForeign(ctx context.Context, ns *interception.Netns, chains []interception.ForeignChain) error {
	err := ns.Check()
	if err == nil {
		err = d.removeForeign(ctx, ns, chains)
	}
	if err != nil {
		return fmt.Errorf("remove another program's tables from %s: %w", ns, err)
	}
	return nil
}
