// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// Options configures a [Reconciler].
type Options struct {
	// Directory is the absolute path of the CNI configurations, commonly /etc/cni/net.d.
	Directory string
	// NodeDirectory is the container runtime's path of the directory, if it is mounted elsewhere
	// here: the absolute targets of symbolic links in the directory are below it. Empty: Directory.
	NodeDirectory string
	// Want is what the directory is to have.
	Want Want
	// Claims keeps the record of what was installed.
	Claims Claims
	// Shared means that another plugin's reconciler may be working in the directory while this one
	// removes its plugin. Remove then keeps temporary files younger than a minute.
	Shared bool
	// Now returns the time; nil means time.Now.
	Now func() time.Time
}

// Reconciler keeps a plugin in a directory. Create it with [New]. It allows one call at a time.
type Reconciler struct {
	o        Options
	caughtUp bool
	calls    filesystem.Observer // of the current pass; nil outside of tests
}

func (o Options) validate() error {
	var errs []error
	if !filepath.IsAbs(o.Directory) {
		errs = append(errs, fmt.Errorf("%w: the directory %q is not an absolute path", ErrInvalid, o.Directory))
	}
	if o.Claims == nil {
		errs = append(errs, fmt.Errorf("%w: there is no directory for the claim: set Claims", ErrInvalid))
	}
	return errors.Join(errs...)
}

// New returns a reconciler. It reads and writes nothing yet. The error wraps [ErrInvalid].
func New(o Options) (*Reconciler, error) {
	if err := errors.Join(o.Want.Validate(), o.validate()); err != nil {
		return nil, err
	}
	o.NodeDirectory = cmp.Or(o.NodeDirectory, filepath.ToSlash(o.Directory))
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Reconciler{o: o}, nil
}

// Plan returns what Install would do now, and changes nothing.
func (r *Reconciler) Plan() (Plan, error) { return r.look(Decide) }

// PlanRemoval returns what Remove would do now, and changes nothing.
func (r *Reconciler) PlanRemoval() (Plan, error) { return r.look(DecideRemoval) }

// Ensure looks at the directory once and does what is necessary, for callers with a loop of their
// own. The plan has steps if anything was done or tried; Plan.Done of them were completed. The
// caller then calls Ensure again to learn whether more is to be done, also if another program's
// write has overtaken it. The error is the plan's, or that of the step that failed.
func (r *Reconciler) Ensure(ctx context.Context) (Plan, error) {
	plan, err := r.ensure(ctx)
	if errors.Is(err, errMoved) {
		err = nil
	}
	return plan, err
}

func (r *Reconciler) ensure(ctx context.Context) (Plan, error) {
	if err := ctx.Err(); err != nil {
		return Plan{}, err
	}
	r.calls = filesystem.ObserverFrom(ctx)
	if !r.caughtUp {
		if err := r.catchUp(staleAfter); err != nil {
			return Plan{}, err
		}
	}
	return r.carryOut(Decide)
}

// mostPasses is how often a one-shot call looks at a directory that other programs keep writing.
const mostPasses = 20

// Install puts the plugin in place, and verifies it. The plan has the place, and all steps, changes
// and notes on the way. The error wraps [ErrWaiting] or [ErrRefused] if the plugin cannot be
// installed now.
func (r *Reconciler) Install(ctx context.Context) (Plan, error) {
	return r.repeat(ctx, r.ensure)
}

// Remove undoes what this or another process has installed, and removes the temporary files of
// killed processes. No other process may be installing the plugin at the same time; see
// [Options.Shared] for other plugins. Remove continues after a step that it cannot undo; the error
// lists all of these, and the plan everything that was done.
func (r *Reconciler) Remove(ctx context.Context) (Plan, error) {
	r.calls = filesystem.ObserverFrom(ctx)
	old := time.Duration(0)
	if r.o.Shared {
		old = staleAfter
	}
	if err := r.catchUp(old); err != nil {
		return Plan{}, err
	}
	return r.repeat(ctx, func(context.Context) (Plan, error) { return r.carryOut(DecideRemoval) })
}

// repeat makes passes until one has nothing to do.
func (r *Reconciler) repeat(ctx context.Context, pass func(context.Context) (Plan, error)) (plan Plan, err error) {
	var done Plan
	for range mostPasses {
		if err := ctx.Err(); err != nil {
			return plan, err
		}
		plan, err = pass(ctx)
		last := len(plan.steps) == 0 || err != nil && !errors.Is(err, errMoved) && !errors.Is(err, plan.Err)
		if done.Change == nil {
			done.Change = plan.Change
		}
		for _, n := range plan.Notes {
			if !slices.Contains(done.Notes, n) {
				done.Notes = append(done.Notes, n)
			}
		}
		done.steps = append(done.steps, plan.steps[:plan.Done]...)
		plan.steps, plan.Done, plan.Change, plan.Notes = done.steps, len(done.steps), done.Change, done.Notes
		if last {
			return plan, err
		}
	}
	return plan, fmt.Errorf("looked %d times, and had to change something each time: find out which other program writes there: %w",
		mostPasses, err)
}

func (r *Reconciler) carryOut(decide func(Snapshot, Claim, Want, time.Time) Plan) (Plan, error) {
	plan, err := r.look(decide)
	if err != nil {
		return plan, err
	}
	if err := r.apply(&plan); err != nil {
		return plan, err
	}
	return plan, plan.Err
}
