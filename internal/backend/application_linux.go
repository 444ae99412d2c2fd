// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/route"
)

// maxAttempts is how often a call starts again because another program changed rules in the
// namespace meanwhile. In each round at least one of the concurrent callers succeeds.
const maxAttempts = 64

// undoTime bounds what has to be undone after the caller's context has ended.
const undoTime = 10 * time.Second

// application is one call of a dataplane.
type application struct {
	*Dataplane
	ns     *interception.Netns
	plan   *interception.Plan // without objects when nothing is wanted
	rules  Rules
	routes *route.Socket

	standing  Standing
	inherited inheritance
	record    route.Record // what the owner and the predecessors remember
}

// unfinishedError means that something of the replaced plan is left, and why.
type unfinishedError struct{ error }

func (u unfinishedError) Unwrap() error { return u.error }

func unfinished(err error) error {
	if err == nil {
		return nil
	}
	return unfinishedError{err}
}

// repeated opens the rules and calls attempt until no other program's change gets in between, and
// once more after an attempt that left something unfinished.
func (d *Dataplane) repeated(ctx context.Context, a *application, attempt func(*application, context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rules, closeRules, err := d.Open(a.ns, a.plan.Owner)
	if err != nil {
		return err
	}
	defer closeRules()
	a.rules = rules
	again := false
	for range maxAttempts {
		err := ctx.Err()
		if err == nil {
			err = attempt(a, ctx)
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
	return fmt.Errorf("other programs keep changing the rules of the namespace: gave up after %d attempts", maxAttempts)
}

// prepare finds out what the plan needs besides the rules, and what the predecessors have.
func (a *application) prepare(ctx context.Context) (*route.Change, error) {
	var err error
	if a.standing, err = a.rules.Look(ctx); err == nil {
		err = a.standing.Blocked
	}
	if err == nil {
		a.inherited, err = inherit(ctx, a.Predecessors, a.ns, a.plan.Owner)
	}
	if err != nil {
		return nil, err
	}
	a.record = a.standing.Record.With(a.inherited.record)
	return a.routes.Prepare(a.plan, a.Protocols.Owner(a.plan.Owner), route.Options{Record: a.record, Shared: a.standing.Shared})
}

func (a *application) apply(ctx context.Context) error {
	change, err := a.prepare(ctx)
	if err != nil {
		return err
	}
	during := change.During()
	// What the record alone has must not get lost, whatever happens after the first step.
	ahead := during.GoesAhead(a.record)
	if ahead {
		if err := a.rules.Remember(ctx, during); err != nil {
			return err
		}
	}
	if err = change.Do(ctx); err == nil {
		err = a.rules.Write(ctx, a.plan, during)
	}
	if err != nil {
		return errors.Join(err, a.undo(ctx, change, ahead))
	}
	if err = a.carry(ctx); err == nil {
		err = a.relieve(ctx)
	}
	if err != nil {
		return unfinished(fmt.Errorf("the plan is in place, but %w", err))
	}
	return a.finish(ctx, change)
}

// carry adds the members of the predecessors' live sets to the plan's. The predecessors' rules,
// which know the members, still stand.
func (a *application) carry(ctx context.Context) error {
	if a.Edit == nil || len(a.inherited.from) == 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	has, err := Heritage{of: a.Dataplane}.Members(ctx, a.ns, a.plan.Owner)
	if err != nil {
		return err
	}
	missing, err := a.inherited.carry(ctx, a.ns, a.plan, has)
	if err != nil {
		return err
	}
	for set, members := range missing {
		if len(members) == 0 {
			continue
		}
		if err := a.Edit(ctx, a.ns, a.plan.Owner, set, interception.SetEdit{Add: members}); err != nil {
			return fmt.Errorf("carry the members of set %s over: %w", set, err)
		}
	}
	return nil
}

// undo undoes what was done before a step that failed. If that fails, too, the record ahead stays:
// the next call needs it.
func (a *application) undo(ctx context.Context, change *route.Change, ahead bool) error {
	if err := change.Undo(); err != nil || !ahead {
		return err
	}
	return a.forget(ctx)
}

// forget undoes what Remember did ahead.
func (a *application) forget(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if a.standing.Found {
		return a.rules.Remember(ctx, a.standing.Record)
	}
	return a.rules.Write(ctx, &interception.Plan{Owner: a.plan.Owner}, route.Record{})
}

func (a *application) relieve(ctx context.Context) error {
	return a.inherited.relieve(ctx, a.ns, a.plan.Owner)
}

// finish removes what the owner had and the plan lacks, and then its record.
func (a *application) finish(ctx context.Context, change *route.Change) error {
	if err := unfinished(change.Settle(ctx)); err != nil {
		return err
	}
	if change.After().Equal(change.During()) {
		return nil
	}
	if err := a.rules.Remember(context.WithoutCancel(ctx), change.After()); err != nil {
		return unfinished(fmt.Errorf("the plan is in place, but the record of the one before could not be removed: %w", err))
	}
	return nil
}

// remove removes what the owner has, and the record last.
func (a *application) remove(ctx context.Context) error {
	change, err := a.prepare(ctx)
	if err != nil {
		return err
	}
	if !a.record.IsEmpty() {
		if err := a.clear(ctx, change, a.record); err != nil {
			return err
		}
		return unfinished(a.clear(context.WithoutCancel(ctx), change, route.Record{}))
	}
	return a.clear(ctx, change, route.Record{})
}

// clear removes all but a record.
func (a *application) clear(ctx context.Context, change *route.Change, record route.Record) error {
	err := a.rules.Write(ctx, a.plan, record)
	if err != nil {
		return err
	}
	if err = a.relieve(ctx); err == nil {
		err = change.Finish()
	}
	return unfinished(err)
}

// removeRules removes the rules and the record, and leaves everything else.
func (a *application) removeRules(ctx context.Context) error {
	standing, err := a.rules.Look(ctx)
	if err != nil || !standing.Found {
		return err
	}
	if standing.Blocked != nil {
		return standing.Blocked
	}
	return a.rules.Write(ctx, a.plan, route.Record{})
}

// claim makes what the plan uses of other programs the owner's, and then forgets whose it was.
func (a *application) claim(ctx context.Context) error {
	standing, err := a.rules.Look(ctx)
	if err != nil || len(standing.Record.FoundObjects) == 0 {
		return err
	}
	if err := errors.Join(standing.Blocked, standing.Shared); err != nil {
		return err
	}
	if err := a.routes.Claim(a.Protocols.Owner(a.plan.Owner), standing.Record); err != nil {
		return err
	}
	record := standing.Record
	record.FoundObjects = nil
	return a.rules.Remember(ctx, record)
}

func (a *application) observe(ctx context.Context) (interception.State, error) {
	standing, err := a.rules.Look(ctx)
	if err != nil {
		return interception.State{}, err
	}
	state := interception.State{Owner: a.plan.Owner}
	state.Objects, state.Deviations, err = a.routes.Observe(a.Protocols.Owner(a.plan.Owner), standing.Record)
	if err == nil {
		err = a.rules.Observe(ctx, &state)
	}
	return state, err
}
