// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/handover"
	"github.com/meshcni/meshcni/internal/nfnetlink"
	"github.com/meshcni/meshcni/internal/route"
)

// maxAttempts is how often a plan is applied again because another process changed rules in the
// namespace meanwhile. In each round at least one of the concurrent callers succeeds.
const maxAttempts = 64

type application struct {
	*Dataplane
	ns     *interception.Netns
	plan   *interception.Plan
	owner  route.Owner
	rules  *nfnetlink.Socket
	routes *route.Socket
}

// standing is what the namespace has of the owner, at a generation of the rules.
type standing struct {
	generation uint32
	table      bool
	handle     uint64 // of the table: unique to each
	shared     error  // another owner has the same protocol number
	record     route.Record
	members    map[interception.SetName][]element
}

// unfinishedError is why objects of the replaced plan are left.
type unfinishedError struct{ error }

func (u unfinishedError) Unwrap() error { return u.error }

func unfinished(err error) error {
	if err == nil {
		return nil
	}
	return unfinishedError{err}
}

// repeated calls attempt until no other process's change gets in between, and once more when the
// attempt left something unfinished.
func (a *application) repeated(ctx context.Context, attempt func(*application, context.Context, *standing) error) error {
	again := false
	for range maxAttempts {
		err := ctx.Err()
		var s standing
		if err == nil {
			s, err = a.look()
		}
		if err == nil {
			err = attempt(a, ctx, &s)
		}
		if left := (unfinishedError{}); errors.As(err, &left) && !again {
			again = true
			ctx = context.WithoutCancel(ctx)
			continue
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
		return standing{}, withoutSubsystem(err)
	}
	tables, err := dumpTables(a.rules)
	if err != nil {
		return standing{}, err
	}
	s := standing{generation: generation, shared: a.sharedProtocol(tables)}
	if s.handle, s.table = tables[string(a.plan.Owner)]; !s.table {
		return s, nil
	}
	if s.record, err = readLedger(a.rules, string(a.plan.Owner)); err != nil {
		return standing{}, err
	}
	s.members, err = liveMembers(a.rules, a.plan)
	return s, err
}

// sharedProtocol returns an error if another owner with the same protocol number has a table.
func (a *application) sharedProtocol(tables map[string]uint64) error {
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		other := interception.Owner(name)
		if other != a.plan.Owner && other.Validate() == nil && a.protocols.Owner(other).Protocol == a.owner.Protocol {
			return fmt.Errorf("table inet %s is there, and its owner has the same protocol number %d as %s: set one of them in Options.Protocols",
				other, a.owner.Protocol, a.plan.Owner)
		}
	}
	return nil
}

// prepare finds out what the plan needs besides the rules, and what the predecessor has.
func (a *application) prepare(ctx context.Context, s *standing, everything bool) (handover.Inheritance, *route.Change, error) {
	old, err := handover.Ask(ctx, a.predecessor, a.ns, a.plan.Owner)
	if err != nil {
		return handover.Inheritance{}, nil, err
	}
	change, err := a.routes.Prepare(a.plan, a.owner, route.Options{
		Record: s.record.With(old.Record), Everything: everything || old.Found, Shared: s.shared,
	})
	return old, change, err
}

func (a *application) apply(ctx context.Context, s *standing) error {
	old, change, err := a.prepare(ctx, s, s.table)
	if err != nil {
		return err
	}
	if !old.Found { // the predecessor's rules have to go even when the plan is in place
		if stands, err := a.stands(s, change); stands || err != nil {
			return err
		}
	}
	return a.write(ctx, s, change, old)
}

func (a *application) write(ctx context.Context, s *standing, change *route.Change, old handover.Inheritance) (err error) {
	during := change.During()
	// The former value of a sysctl must not get lost, whatever happens after the write.
	ahead := during.Restores(s.record)
	if ahead {
		if err := a.remember(s, s.record, during); err != nil {
			return err
		}
	}
	if err = change.Do(ctx); err == nil {
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
	if err := unfinished(old.Relieve(ctx)); err != nil {
		return err
	}
	return a.finish(ctx, s, change)
}

// commit replaces the rules. A fresh namespace takes the cheaper transaction that only adds.
func (a *application) commit(ctx context.Context, s *standing, record route.Record, ahead bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := a.transaction(s)
	t.members, t.record = s.members, record
	if s.table || ahead {
		t.replace(a.plan)
	} else {
		t.create(a.plan)
	}
	return a.send(s, t, func(now standing) bool { return now.table && now.handle != s.handle })
}

func (a *application) transaction(s *standing) *transaction {
	return newTransaction(a.plan.Owner).onGeneration(s.generation)
}

// send commits a transaction. When the answer gets lost, it checks whether the kernel has done what
// the transaction is for: the lock keeps other callers from doing the same meanwhile.
func (a *application) send(s *standing, t *transaction, done func(now standing) bool) error {
	err := t.commit(a.rules)
	if err == nil {
		s.generation = max(s.generation+1, 1) // the kernel skips 0
		return nil
	}
	if !errors.Is(err, nfnetlink.ErrNoAnswer) {
		return err
	}
	now, failed := a.look()
	if failed != nil || now.generation == s.generation || !done(now) {
		return errors.Join(err, failed)
	}
	s.generation = now.generation
	return nil
}

// finish removes what the owner had and the plan lacks, and then its record.
func (a *application) finish(ctx context.Context, s *standing, change *route.Change) error {
	if err := unfinished(change.Settle(ctx)); err != nil {
		return err
	}
	if change.After().Equal(change.During()) {
		return nil
	}
	err := a.remember(s, change.During(), change.After())
	if err == nil || errors.Is(err, unix.ERESTART) { // another caller has applied a plan already, and does the rest
		return nil
	}
	return unfinishedError{fmt.Errorf("the plan stands, and what is remembered about the one before is left: %w", err)}
}

// remember replaces one record in the owner's table by another.
func (a *application) remember(s *standing, old, record route.Record) error {
	t := a.transaction(s)
	t.record = record
	return a.send(s, t.rewriteLedger(!old.IsEmpty()), func(now standing) bool { return now.table && now.record.Equal(record) })
}

func (a *application) deleteTable(s *standing) error {
	return a.send(s, a.transaction(s).delete(), func(now standing) bool { return !now.table })
}

// forget undoes what remember did before a step that failed.
func (a *application) forget(s *standing, record route.Record) error {
	if s.table {
		return a.remember(s, record, s.record)
	}
	return a.deleteTable(s)
}

// remove removes what the owner has, and the record last.
func (a *application) remove(ctx context.Context, s *standing) error {
	old, change, err := a.prepare(ctx, s, true)
	if err != nil {
		return err
	}
	if record := s.record.With(old.Record); !record.Equal(s.record) { // the predecessor's record goes with its rules
		if err := a.remember(s, s.record, record); err != nil {
			return err
		}
		s.table, s.record = true, record
	}
	if s.table && !s.record.IsEmpty() {
		if err := a.commit(ctx, s, s.record, false); err != nil {
			return err
		}
		if err := unfinished(old.Relieve(ctx)); err != nil {
			return err
		}
		if err := unfinished(change.Finish()); err != nil {
			return err
		}
	}
	if s.table {
		if err := unfinished(a.deleteTable(s)); err != nil {
			return err
		}
	}
	if err := unfinished(old.Relieve(ctx)); err != nil {
		return err
	}
	return unfinished(change.Finish())
}
