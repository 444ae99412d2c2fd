// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/hashicorp/go-multierror"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
)

// Change brings a namespace from its present state to a plan. [Socket.Prepare] makes it.
type Change struct {
	socket *Socket
	plan   *interception.Plan
	owner  Owner
	found  found
	before Record // the record so far
	left   Record // the record in the end
	steps  []step
	stale  []step
	undo   []step // of what Do has done

	keptRoutes []int // the indices of found routes that the plan has or replaces
}

// step adds or removes one object of a plan.
type step struct {
	at   interception.RuleID
	why  string
	do   func() error
	undo func() error // nil when there is nothing to undo
}

// Options are the settings of [Socket.Prepare].
type Options struct {
	// Record is what is remembered of the namespace.
	Record Record
	// Shared, unless nil, names another owner with the same protocol number. Each would remove the
	// other's objects, so Prepare returns Shared when the change needs more than rules.
	Shared error
}

// Prepare looks at the namespace and plans how to bring it to p for the owner. It writes nothing.
// An [*interception.ApplyError] names what is in the way of an object.
func (s *Socket) Prepare(p *interception.Plan, owner Owner, o Options) (*Change, error) {
	found, err := s.scan()
	if err != nil {
		return nil, err
	}
	c := &Change{socket: s, plan: p, owner: owner, found: found, before: o.Record}
	for _, object := range p.Objects {
		if err := c.prepare(object); err != nil {
			return nil, err
		}
	}
	c.staleRules()
	c.staleRoutes()
	c.staleSysctls(p)
	c.staleAddresses(p)
	c.staleLinks(p)
	if o.Shared != nil && (len(c.stale) > 0 || !OnlyRules(p)) {
		return nil, o.Shared
	}
	return c, nil
}

func (c *Change) prepare(object interception.Object) error {
	switch o := object.(type) {
	case interception.Link:
		return c.link(o)
	case interception.Address:
		c.address(o)
	case interception.Sysctl:
		return c.sysctl(o)
	case interception.Route:
		return c.route(o)
	case interception.PolicyRule:
		return c.rule(o)
	}
	return nil
}

// During returns the record to keep before Do, so that everything that happens later can be undone:
// the record so far, and what the plan adds.
func (c *Change) During() Record {
	return c.left.With(Record{Sysctls: c.before.Sysctls, Addresses: c.before.Addresses})
}

// After returns the record to keep once Finish is done.
func (c *Change) After() Record { return c.left }

// Do adds what the plan has and the namespace lacks, in the order of the plan. After an error, an
// [*interception.ApplyError] about the object, the caller calls Undo.
func (c *Change) Do(ctx context.Context) error {
	for _, s := range c.steps {
		err := ctx.Err()
		if err == nil {
			err = s.do()
		}
		if s.undo != nil && (err == nil || errors.Is(err, kernel.ErrNoAnswer)) { // without an answer the step may have been done
			c.undo = append(c.undo, s)
		}
		if err != nil {
			return &interception.ApplyError{At: string(s.at), Why: s.why, Err: err}
		}
	}
	return nil
}

// Undo undoes what Do has done, in reverse order. It continues after errors, and returns them all.
func (c *Change) Undo() error {
	var errs *multierror.Error
	for _, s := range slices.Backward(c.undo) {
		if err := s.undo(); err != nil {
			errs = multierror.Append(errs, fmt.Errorf("undo %s (%s): %w", s.at, s.why, err))
		}
	}
	c.undo = nil
	return errs.ErrorOrNil()
}

// Finish removes what the owner had and the plan lacks, in reverse order. It continues after
// errors, and returns them all.
func (c *Change) Finish() error {
	var errs *multierror.Error
	for _, s := range c.stale {
		if err := s.do(); err != nil {
			errs = multierror.Append(errs, err)
		}
	}
	return errs.ErrorOrNil()
}

// Settle finishes a change whose plan is in place.
//
// With an address the kernel also removes the secondary addresses of its subnet, and the routes
// that use them. Settle adds these again.
func (c *Change) Settle(ctx context.Context) error {
	if err := c.Finish(); err != nil {
		return fmt.Errorf("the plan is in place, but something of the one before could not be removed: %w", err)
	}
	if len(c.stale) == 0 {
		return nil
	}
	again, err := c.socket.Prepare(c.plan, c.owner, Options{Record: c.left})
	if err == nil {
		if err = again.Do(context.WithoutCancel(ctx)); err != nil {
			err = errors.Join(err, again.Undo())
		}
	}
	if err != nil {
		return fmt.Errorf("the plan is in place, except for what was lost with an address of the one before: %w", err)
	}
	return nil
}

// gone ignores an error which means that the object to remove does not exist any more.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, errno := range []error{unix.ENOENT, unix.ESRCH, unix.ENODEV, unix.EADDRNOTAVAIL} {
		if errors.Is(err, errno) {
			return nil
		}
	}
	return err
}

type found struct {
	others    []otherFound
	links     []netlink.Link
	addresses []address
	routes    []foundRoute
	rules     []foundRule
}

// scan reads all objects of each kind but sysctls, whatever a plan has: an earlier call with
// another plan may have ended before it recorded anything.
func (s *Socket) scan() (f found, err error) {
	what := "links"
	// The kernel numbers the namespaces that links lead to when it lists the links.
	f.links, err = s.listLinks()
	if err == nil {
		f.others, err = s.scanOthers()
	}
	if err == nil {
		what = "addresses"
		f.addresses, err = s.listAddresses()
	}
	if err == nil {
		what = "routes"
		f.routes, err = s.listRoutes()
	}
	if err == nil {
		what = "policy rules"
		f.rules, err = s.listRules()
	}
	if err != nil {
		return found{}, fmt.Errorf("list %s: %w", what, err)
	}
	return f, nil
}

// deviceName returns the name of the interface with an index; "" when there is no such interface.
func (f found) deviceName(index uint32) interception.Interface {
	for _, l := range f.links {
		if l.Attrs().Index == int(index) {
			return nameOf(l)
		}
	}
	return ""
}

// device returns the index of an interface: one that was found, or one of the plan made meanwhile.
func (c *Change) device(name interception.Interface) (uint32, error) {
	l, err := c.linkNamed(name)
	if err != nil {
		return 0, err
	}
	return uint32(l.Attrs().Index), nil
}
