// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/meshcni/meshcni/interception"
)

// Options say where the dataplane fails. The zero value never does. The functions may be called
// from several goroutines at once, and must not call the dataplane.
type Options struct {
	// Before is asked once a call's arguments are found to be good, and before anything is done.
	// Its error is the call's: the namespace is as it was. [Nth] makes one that fails once.
	Before func(Call) error
	// After is asked when the work is done. Its error is the call's, too: the namespace holds the
	// new plan, and the caller was told of a failure, as when an answer gets lost.
	After func(Call) error
	// Refuse says why the dataplane cannot apply a part of a plan, and "" when it can. [Lacks]
	// makes one.
	Refuse func(Part) string
}

// Dataplane is an [interception.Dataplane] in memory. The zero value is one without any namespaces
// that never fails; [New] makes one that does. It may be used by many goroutines at once.
type Dataplane struct {
	options Options

	mu         sync.Mutex
	namespaces map[interception.NetnsID]map[interception.Owner][]interception.Object
	calls      []Call
	handles    uint64 // that were made
}

var _ interception.Dataplane = (*Dataplane)(nil)

// New returns a dataplane without any namespaces.
func New(o Options) *Dataplane {
	return &Dataplane{options: o}
}

// Netns makes a handle that stands for a new namespace, which has nothing in it. The name is for
// people. A handle that was opened by other means serves as well; what is put into it is remembered
// here, and reaches no kernel.
func (d *Dataplane) Netns(name string) *interception.Netns {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handles++
	return interception.StandInNetns(name, interception.NetnsID{Inode: d.handles})
}

// Apply makes ns hold exactly p for p's owner, as [interception.Dataplane] says. Nothing is done
// when the context has ended.
func (d *Dataplane) Apply(ctx context.Context, ns *interception.Netns, p *interception.Plan) error {
	if p == nil {
		return errors.New("apply plan: the plan is nil")
	}
	call := Call{Verb: Apply, Owner: p.Owner, Plan: &interception.Plan{Owner: p.Owner, Objects: clone(p.Objects, true)}}
	err := p.Validate()
	if err == nil {
		err = d.Supports(p)
	}
	if err = d.change(ctx, ns, call, err); err != nil {
		return fmt.Errorf("apply plan of %s to %s: %w", p.Owner, ns, err)
	}
	return nil
}

// Remove takes everything of owner out of ns. It is nil when nothing was there.
func (d *Dataplane) Remove(ctx context.Context, ns *interception.Netns, owner interception.Owner) error {
	if err := d.change(ctx, ns, Call{Verb: Remove, Owner: owner}, owner.Validate()); err != nil {
		return fmt.Errorf("remove plan of %s from %s: %w", owner, ns, err)
	}
	return nil
}

// Observe returns what ns holds of the owner: the objects of the plan that was applied, as they
// were edited since, without their provenance. It is an empty state when there is nothing.
func (d *Dataplane) Observe(ctx context.Context, ns *interception.Netns, owner interception.Owner) (interception.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.begin(ctx, ns, Call{Verb: Observe, Owner: owner}, owner.Validate())
	if err != nil {
		return interception.State{}, fmt.Errorf("observe %s in %s: %w", owner, ns, err)
	}
	return interception.State{Owner: owner, Objects: clone(d.namespaces[ns.ID()][owner], false)}, nil
}

// Supports names each part of the plan that [Options].Refuse refuses, and wraps
// [interception.ErrUnsupported].
func (d *Dataplane) Supports(p *interception.Plan) error {
	if p == nil {
		return errors.New("the plan is nil")
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

// change is a call that changes a namespace, unless its arguments are bad.
func (d *Dataplane) change(ctx context.Context, ns *interception.Netns, call Call, bad error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.begin(ctx, ns, call, bad); err != nil {
		return err
	}
	owners := d.owners(ns)
	delete(owners, call.Owner)
	if call.Plan != nil && len(call.Plan.Objects) > 0 {
		owners[call.Owner] = clone(call.Plan.Objects, true)
	}
	if d.options.After == nil {
		return nil
	}
	last := &d.calls[len(d.calls)-1]
	last.Err = d.options.After(*last)
	return last.Err
}

// begin remembers a call, and says why it must not go on.
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

// Edit changes what a namespace holds of an owner, as somebody with the privileges could behind the
// dataplane's back; the objects are edit's to change. It is no call of the interface, and is
// neither checked nor remembered. Objects that make no plan are for the tests of code that reads
// states.
func (d *Dataplane) Edit(ns *interception.Netns, owner interception.Owner, edit func([]interception.Object) []interception.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	owners := d.owners(ns)
	owners[owner] = edit(clone(owners[owner], true))
}

// Dump is everything in a namespace as text, owner by owner in the order of their names; "" when
// there is nothing.
func (d *Dataplane) Dump(ns *interception.Netns) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	owners := d.namespaces[ns.ID()]
	var b strings.Builder
	for _, owner := range slices.Sorted(maps.Keys(owners)) {
		b.WriteString((&interception.Plan{Owner: owner, Objects: owners[owner]}).String())
	}
	return b.String()
}

// Calls are the calls so far, in order, those that failed included. Supports is not among them: it
// is asked by Apply, too.
func (d *Dataplane) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// owners is what a namespace holds, to be changed.
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

// Verb is which method was called.
type Verb string

// The verbs.
const (
	Apply   Verb = "Apply"
	Remove  Verb = "Remove"
	Observe Verb = "Observe"
)

// Call is one call of the dataplane.
type Call struct {
	// Verb is the method, and N counts its calls from 1.
	Verb Verb
	N    int
	// Netns is the namespace; zero when the handle could not be used.
	Netns interception.NetnsID
	// Owner is whose plan it was about.
	Owner interception.Owner
	// Plan is the plan to be applied; nil but for Apply.
	Plan *interception.Plan
	// Err is what the call returned, less the words around it; it is nil in what [Options].Before
	// and After see.
	Err error
}

// String is the call in one line, such as "Apply 2: istio-cni in net:[1]: error".
func (c Call) String() string {
	text := fmt.Sprintf("%s %d: %s in net:[%d]", c.Verb, c.N, c.Owner, c.Netns.Inode)
	if c.Err != nil {
		text += ": " + c.Err.Error()
	}
	return text
}

// Nth fails the n-th call of a method, counted from 1, with err, and no other: for [Options].Before
// and After.
func Nth(verb Verb, n int, err error) func(Call) error {
	return func(c Call) error {
		if c.Verb == verb && c.N == n {
			return err
		}
		return nil
	}
}
