// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/route"
)

// maxAttempts is how often a plan is applied anew because somebody changed rules in the namespace meanwhile. Each time at least one of
// those who do so at once has succeeded.
const maxAttempts = 64

// application applies one plan to a namespace that may hold something already.
type application struct {
	*Dataplane
	plan   *interception.Plan
	owner  route.Owner
	rules  *nfnetlink.Socket
	routes *route.Socket
}

// standing is what the namespace holds of the owner, at a generation of the rules.
type standing struct {
	generation uint32
	table      bool
	shared     error // another owner has the same protocol number
	record     route.Record
	members    map[interception.SetName][]element
}

// next is the generation that the owner's own transaction makes. The kernel passes over 0.
func (s *standing) next() { s.generation = max(s.generation+1, 1) }

// repeated calls attempt until nobody else's change gets in between.
func (a *application) repeated(ctx context.Context, attempt func(*application, context.Context, *standing) error) error {
	for range maxAttempts {
		err := ctx.Err()
		var s standing
		if err == nil {
			s, err = a.look()
		}
		if err == nil {
			err = attempt(a, ctx, &s)
		}
		if !errors.Is(err, unix.ERESTART) {
			return err
		}
	}
	return fmt.Errorf("others change the rules of the namespace all the time: given up after %d attempts", maxAttempts)
}

func (a *application) look() (standing, error) {
	generation, err := a.rules.Generation()
	if err != nil {
		return standing{}, err
	}
	tables, err := dumpTables(a.rules)
	if err != nil {
		return standing{}, err
	}
	s := standing{generation: generation, table: slices.Contains(tables, string(a.plan.Owner)), shared: a.sharedProtocol(tables)}
	if !s.table {
		return s, nil
	}
	if s.record, err = readLedger(a.rules, string(a.plan.Owner)); err != nil {
		return standing{}, err
	}
	s.members, err = liveMembers(a.rules, a.plan)
	return s, err
}

// sharedProtocol is the reason not to work beside an owner with the same protocol number: one would take away what the other has.
func (a *application) sharedProtocol(tables []string) error {
	for _, name := range tables {
		other := interception.Owner(name)
		if other != a.plan.Owner && other.Validate() == nil && a.protocol(other) == a.owner.Protocol {
			return fmt.Errorf("table inet %s is there, and its owner has the same protocol number %d as %s: set one of them in Options.Protocols",
				other, a.owner.Protocol, a.plan.Owner)
		}
	}
	return nil
}

// apply brings the namespace to the plan.
func (a *application) apply(ctx context.Context, s *standing) error {
	change, err := a.routes.Prepare(a.plan, a.owner, route.Options{Record: s.record, Everything: s.table})
	if err != nil {
		return err
	}
	if s.shared != nil && (change.Stale() || !onlyRules(a.plan)) {
		return s.shared
	}
	during := change.During()
	// What a sysctl was before must not get lost, whatever happens once it is written.
	ahead := len(during.Sysctls) > 0 && !during.Equal(s.record)
	if ahead {
		if err := a.remember(s, s.record, during); err != nil {
			return err
		}
	}
	if err = change.Do(ctx, a.before); err == nil {
		if err = a.commit(ctx, s, during, ahead); err != nil {
			err = errors.Join(err, change.Undo())
		}
	}
	if err != nil {
		if ahead {
			err = errors.Join(err, a.forget(s, during))
		}
		return err
	}
	return a.finish(ctx, s, change)
}

// commit replaces the rules. What a fresh namespace gets is only added, which is much cheaper.
func (a *application) commit(ctx context.Context, s *standing, record route.Record, ahead bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if a.before != nil {
		if err := a.before("table inet " + string(a.plan.Owner)); err != nil {
			return err
		}
	}
	t := newTransaction(a.plan.Owner).onGeneration(s.generation)
	t.members, t.record = s.members, record
	if s.table || ahead {
		t.replace(a.plan)
	} else {
		t.create(a.plan)
	}
	if err := t.commit(a.rules); err != nil {
		return err
	}
	s.next()
	return nil
}

// finish takes away what the owner had and the plan has not, and what is remembered about it.
//
// With an address the kernel takes away others of its subnet, which were secondary to it, and the routes by way of them: these are added
// again.
func (a *application) finish(ctx context.Context, s *standing, change *route.Change) error {
	if err := change.Finish(); err != nil {
		return fmt.Errorf("the plan stands, and something of the one before is left: %w", err)
	}
	if change.Stale() {
		again, err := a.routes.Prepare(a.plan, a.owner, route.Options{Record: change.After()})
		if err == nil {
			err = again.Do(context.WithoutCancel(ctx), nil)
		}
		if err != nil {
			return fmt.Errorf("the plan stands, but for what went with an address of the one before: %w", err)
		}
	}
	if change.After().Equal(change.During()) {
		return nil
	}
	err := a.remember(s, change.During(), change.After())
	if errors.Is(err, unix.ERESTART) { // somebody has applied another plan already, and sees to it
		return nil
	}
	return err
}

// remember replaces one record in the owner's table by another.
func (a *application) remember(s *standing, old, record route.Record) error {
	t := newTransaction(a.plan.Owner).onGeneration(s.generation)
	t.record = record
	if err := t.rewriteLedger(!old.IsEmpty()).commit(a.rules); err != nil {
		return err
	}
	s.next()
	return nil
}

// forget takes back what remember did before a step that failed.
func (a *application) forget(s *standing, record route.Record) error {
	if s.table {
		return a.remember(s, record, s.record)
	}
	return newTransaction(a.plan.Owner).onGeneration(s.generation).delete().commit(a.rules)
}

// remove takes away what the owner has. What is remembered goes last.
func (a *application) remove(_ context.Context, s *standing) error {
	change, err := a.routes.Prepare(a.plan, a.owner, route.Options{Record: s.record, Everything: true})
	if err != nil {
		return err
	}
	if s.shared != nil && change.Stale() {
		return s.shared
	}
	if s.table && !s.record.IsEmpty() {
		t := newTransaction(a.plan.Owner).onGeneration(s.generation)
		t.record = s.record
		if err := t.replace(a.plan).commit(a.rules); err != nil {
			return err
		}
		s.next()
		if err := change.Finish(); err != nil {
			return err
		}
	}
	if s.table {
		if err := newTransaction(a.plan.Owner).onGeneration(s.generation).delete().commit(a.rules); err != nil {
			return err
		}
	}
	return change.Finish()
}
