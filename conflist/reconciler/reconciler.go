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

// Options says what a [Reconciler] keeps, and where.
type Options struct {
	// Directory is the directory of CNI configurations, commonly /etc/cni/net.d, by an absolute path.
	Directory string
	// NodeDirectory is the path that the container runtime knows the directory by, if it is mounted elsewhere here: the absolute targets of
	// symbolic links in the directory are below it. Empty: Directory.
	NodeDirectory string
	// Want says what it is to have.
	Want Want
	// Claims keeps the record of what was done; [ClaimFile] does for one mesh.
	Claims Claims
	// Shared says that another plugin's reconciler may be at work in the directory while this one removes its plugin. Remove then leaves the
	// temporary files that were made within the last minute.
	Shared bool
	// Ready, unless it is nil, is asked before anything is written: its error says what pods would lack if the plugin were called now. Run asks
	// again when something changes.
	Ready func(context.Context) error
	// Also are directories whose changes may make Ready answer otherwise.
	Also []string
	// OnEvent, unless it is nil, is told what Run does and finds. It is called by Run's goroutine, which waits for it.
	OnEvent func(Event)
	// Interval is how often Run looks although nothing has changed. Zero means ten minutes, less than zero never.
	Interval time.Duration
	// Now tells the time; nil means time.Now.
	Now func() time.Time
}

// Reconciler keeps a plugin present in a directory. Make it with [New]. Its methods may not be called at once.
type Reconciler struct {
	o        Options
	caughtUp bool
	calls    filesystem.Observer // of the pass that goes on; nil outside of tests
}

// defaultInterval is rare enough to cost nothing, and catches what no event told.
const defaultInterval = 10 * time.Minute

func (o Options) validate() error {
	var errs []error
	if !filepath.IsAbs(o.Directory) {
		errs = append(errs, fmt.Errorf("%w: the directory %q is not given by an absolute path", ErrInvalid, o.Directory))
	}
	if file, is := o.Claims.(ClaimFile); o.Claims == nil || is && file.Path == "" {
		errs = append(errs, fmt.Errorf("%w: nothing keeps the claim: give a ClaimFile with a path, or Claims of your own", ErrInvalid))
	}
	return errors.Join(errs...)
}

// New returns a reconciler, and reads and writes nothing yet. The error wraps [ErrInvalid].
func New(o Options) (*Reconciler, error) {
	if err := errors.Join(o.Want.Validate(), o.validate()); err != nil {
		return nil, err
	}
	if o.OnEvent == nil {
		o.OnEvent = func(Event) {}
	}
	if o.Ready == nil {
		o.Ready = func(context.Context) error { return nil }
	}
	o.NodeDirectory = cmp.Or(o.NodeDirectory, filepath.ToSlash(o.Directory))
	o.Interval = cmp.Or(o.Interval, defaultInterval)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Reconciler{o: o}, nil
}

// Plan says what Install would do now, and does nothing.
func (r *Reconciler) Plan() (Plan, error) { return r.look(Decide) }

// PlanRemoval says what Remove would do now, and does nothing.
func (r *Reconciler) PlanRemoval() (Plan, error) { return r.look(DecideRemoval) }

// Ensure looks at the directory once and does what has to be done, for those who have a loop of their own. The plan has steps if anything was
// done or tried, of which Plan.Done were done; then looking again tells whether that was all, also where somebody else's writing has
// overtaken it. The error is the plan's, or that of the step that failed.
func (r *Reconciler) Ensure(ctx context.Context) (Plan, error) {
	plan, err := r.ensure(ctx)
	if errors.Is(err, errMoved) {
		err = nil
	}
	return plan, err
}

func (r *Reconciler) ensure(ctx context.Context) (Plan, error) {
	if err := errors.Join(ctx.Err(), r.o.Ready(ctx)); err != nil {
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

// mostPasses is how often a one-shot call looks at a directory that others write to at the same time.
const mostPasses = 20

// Install puts the plugin in place, and verifies that it is. The plan says where, and its steps, change and notes are all that was done on the
// way. The error wraps [ErrWaiting] or [ErrRefused] if that can't be done now.
func (r *Reconciler) Install(ctx context.Context) (Plan, error) {
	return r.repeat(ctx, r.ensure)
}

// Remove undoes what was done, by this process or another, and removes what killed ones were writing. No other process may be installing the
// plugin at the same time; see [Options.Shared] for other plugins. Remove goes on after what can't be undone; the error has all of that. The
// plan has all that was done.
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

// repeat does passes until one has nothing to do.
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
	return plan, fmt.Errorf("looked %d times, and each time there was something to do again: find out who else writes there: %w", mostPasses, err)
}

// carryOut does one plan.
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
