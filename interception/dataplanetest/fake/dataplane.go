// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/meshcni/meshcni/interception"
)

// Options make the dataplane fail. The zero value never fails. The functions may be called from
// several goroutines at once, and must not call the dataplane.
type Options struct {
	// Before is called with every call whose arguments are valid, before it does anything. If
	// Before returns an error, the call returns it and leaves the namespace as it was. [Nth]
	// returns a function that fails once.
	Before func(Call) error
	// After is called when the work is done. If After returns an error, the call returns it,
	// although the namespace holds the new plan: as when an answer gets lost.
	After func(Call) error
	// Refuse returns why the dataplane cannot apply a part of a plan, and "" if it can. [Lacks]
	// returns such a function.
	Refuse func(PlanPart) string
}

// Dataplane is an [interception.Dataplane] in memory. The zero value has no namespaces and never
// fails; use [New] for one that does. It is safe for concurrent use.
type Dataplane struct {
	options Options

	mu         sync.Mutex
	namespaces map[interception.NetnsID]map[interception.Owner][]interception.Object
	members    map[liveSet]map[netip.Addr]string // with their owners
	calls      []Call
	handles    uint64 // number of handles from Netns
}

var _ interception.Dataplane = (*Dataplane)(nil)

// New returns a dataplane without namespaces.
func New(o Options) *Dataplane {
	return &Dataplane{options: o}
}

// Netns returns a handle for a new, empty namespace. The name is for people. Handles opened by
// other means work as well; their rules are kept in memory here, and reach no kernel.
func (d *Dataplane) Netns(name string) *interception.Netns {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handles++
	return interception.StandInNetns(name, interception.NetnsID{Inode: d.handles})
}

// Apply makes ns hold exactly p for p's owner, as [interception.Dataplane] requires. It does
// nothing if the context has ended.
func (d *Dataplane) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	if p == nil {
		return fmt.Errorf("apply plan: %w", p.Validate())
	}
	call := Call{Verb: Apply, Owner: p.Owner, Plan: &interception.Plan{Owner: p.Owner, Objects: clone(p.Objects, true)}}
	err := p.Validate()
	if err == nil {
		err = d.Supports(p)
	}
	if err == nil && ns.Check() == nil {
		err = ns.CheckLabels(p)
	}
	if err = d.change(ctx, ns, call, err); err != nil {
		return fmt.Errorf("apply plan of %s to %s: %w", p.Owner, ns, err)
	}
	return nil
}

// Remove removes everything of owner from ns. It returns nil if there was nothing.
func (d *Dataplane) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	if err := d.change(ctx, ns, Call{Verb: Remove, Owner: owner}, owner.Validate()); err != nil {
		return fmt.Errorf("remove plan of %s from %s: %w", owner, ns, err)
	}
	return nil
}

// Observe returns the owner's objects in ns: those of the applied plan, with later edits, without
// provenance. The state is empty if there are none.
func (d *Dataplane) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.begin(ctx, ns, Call{Verb: Observe, Owner: owner}, owner.Validate())
	if err != nil {
		return interception.State{}, fmt.Errorf("observe %s in %s: %w", owner, ns, err)
	}
	return d.observed(ns.ID(), owner), nil
}

// Supports returns an error that names each part of the plan that [Options].Refuse refuses, and
// wraps [interception.ErrUnsupported].
func (d *Dataplane) Supports(p *interception.Plan) error {
	if p == nil {
		return p.Validate() // it is never valid
	}
	if d.options.Refuse == nil {
		return nil
	}
	var errs []error
	for part := range parts(p) {
		if reason := d.options.Refuse(part); reason != "" {
			errs = append(errs, fmt.Errorf("%s: %w: %s", part.At, interception.ErrUnsupported, reason))
		}
	}
	return errors.Join(errs...)
}

// change performs a call that changes a namespace, unless its arguments are invalid.
func (d *Dataplane) change(ctx context.Context, ns *interception.Netns, call Call, bad error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(ctx, ns, call, bad); err != nil {
		return err
	}
	last := &d.calls[len(d.calls)-1]
	owners := d.owners(ns)
	if last.Err = collision(owners, call); last.Err != nil {
		return last.Err
	}
	delete(owners, call.Owner)
	if call.Plan != nil && len(call.Plan.Objects) > 0 {
		owners[call.Owner] = clone(call.Plan.Objects, true)
	}
	d.keepMembers(ns.ID(), call.Owner)
	if d.options.After == nil {
		return nil
	}
	last.Err = d.options.After(*last)
	return last.Err
}

// begin records a call, and returns why it must not go on.
func (d *Dataplane) begin(ctx context.Context, ns *interception.Netns, call Call, err error) error {
	if checked := ns.Check(); checked != nil {
		err = errors.Join(err, checked)
	} else {
		call.Netns = ns.ID()
	}
	if err == nil {
		err = ctx.Err()
	}
	call.N = 1
	for _, earlier := range d.calls {
		if earlier.Verb == call.Verb {
			call.N++
		}
	}
	if err == nil && d.options.Before != nil {
		err = d.options.Before(call)
	}
	call.Err = err
	d.calls = append(d.calls, call)
	return err
}

// Edit changes an owner's objects in a namespace, as another privileged process could without the
// dataplane's knowledge; edit may modify the objects. It is not a call of the interface, and is
// neither checked nor recorded. Objects that make no valid plan are for the tests of code that
// reads states.
func (d *Dataplane) Edit(ns *interception.Netns, owner interception.Owner, edit func([]interception.Object) []interception.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	owners := d.owners(ns)
	owners[owner] = edit(clone(owners[owner], true))
}

// Dump returns the content of a namespace as text, by owner in the order of names; "" if it is
// empty.
func (d *Dataplane) Dump(ns *interception.Netns) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	owners := d.namespaces[ns.ID()]
	var b strings.Builder
	for _, owner := range slices.Sorted(maps.Keys(owners)) {
		b.WriteString((&interception.Plan{Owner: owner, Objects: owners[owner]}).String())
		for _, set := range slices.Sorted(maps.Keys(d.observed(ns.ID(), owner).Owners)) {
			fmt.Fprintf(&b, "members of %s: %v\n", set, d.members[liveSet{ns.ID(), owner, set}])
		}
	}
	return b.String()
}

// Calls returns the calls so far, in order, with those that failed. It leaves out Supports, which
// Apply calls too.
func (d *Dataplane) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// owners returns the content of a namespace, which the caller may change.
func (d *Dataplane) owners(ns *interception.Netns) map[interception.Owner][]interception.Object {
	if d.namespaces == nil {
		d.namespaces = map[interception.NetnsID]map[interception.Owner][]interception.Object{}
	}
	owners := d.namespaces[ns.ID()]
	if owners == nil {
		owners = map[interception.Owner][]interception.Object{}
		d.namespaces[ns.ID()] = owners
	}
	return owners
}

// Verb is the name of a method.
type Verb string

// The verbs.
const (
	Apply     Verb = "Apply"
	Remove    Verb = "Remove"
	Observe   Verb = "Observe"
	UpdateSet Verb = "UpdateSet"
)

// Call is one call of the dataplane.
type Call struct {
	// Verb is the method, and N counts its calls from 1.
	Verb Verb
	N    int
	// Netns is the namespace; zero if the handle could not be used.
	Netns interception.NetnsID
	// Owner is the owner of the plan.
	Owner interception.Owner
	// Plan is the plan to apply; nil except for Apply.
	Plan *interception.Plan
	// Set and Edit are those of UpdateSet.
	Set  interception.SetName
	Edit interception.SetEdit
	// Err is the error of the call without its context; it is nil in [Options].Before and After.
	Err error
}

// String returns the call in one line, such as "Apply 2: istio-cni in net:[1]: error".
func (c Call) String() string {
	text := fmt.Sprintf("%s %d: %s in net:[%d]", c.Verb, c.N, c.Owner, c.Netns.Inode)
	if c.Err != nil {
		text += ": " + c.Err.Error()
	}
	return text
}

// Nth returns a function, for [Options].Before and After, that fails only the n-th call of a
// method, counted from 1, with err.
func Nth(verb Verb, n int, err error) func(Call) error {
	return func(c Call) error {
		if c.Verb == verb && c.N == n {
			return err
		}
		return nil
	}
}
