// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"path/filepath"
	"slices"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// Run keeps the plugin in place until the context ends; it does not return before. It removes
// nothing then: the next version takes over the claim. Between changes it sleeps;
// [Options].Interval is its only timer while everything is in place.
func (r *Reconciler) Run(ctx context.Context) {
	k := &keeper{Reconciler: r}
	upkeep.New(upkeep.Options{Interval: r.o.Interval, Now: r.o.Now, Unwatched: k.unwatched, Lost: k.lost}, k).Run(ctx)
}

// keeper is a Run.
type keeper struct {
	*Reconciler
	plan    Plan     // of the last pass
	ended   bool     // the context's end has overtaken the last pass
	file    string   // where the plugin is, as far as is known
	through []string // the paths that the links pass through, as last seen
	unseen  bool     // the watches were last reported missing
	said    string   // the last report, so that none is repeated
}

// Directories returns the directory of configurations, those that Ready depends on, a network's if
// it has a drop-in, and those that links lead into.
func (k *keeper) Directories() []string {
	directories := append([]string{filepath.Clean(k.o.Directory)}, k.o.Also...)
	for _, below := range (Plan{File: k.file, Through: k.through}).Directories() {
		directories = append(directories, filepath.Join(k.o.Directory, filepath.FromSlash(below)))
	}
	return directories
}

// Concerns reports whether runtimes load a file, a link passes through it, or Ready needs it.
func (k *keeper) Concerns(file string) bool {
	name, above := filepath.Base(file), filepath.Dir(file)
	return !filesystem.IsTemporary(name) &&
		(above != filepath.Clean(k.o.Directory) || relevant(name) || slices.Contains(k.through, name))
}

// Pass looks at the directory once.
func (k *keeper) Pass(ctx context.Context) upkeep.Result {
	plan, err := k.ensure(ctx)
	k.plan, k.ended = plan, ctx.Err() != nil
	if plan.File != "" {
		k.file = plan.File
	}
	k.through = plan.Through
	return upkeep.Result{Outcome: outcome(plan, err), Again: plan.Again, Err: err}
}

// outcome returns the outcome of a pass. A plan with an error may have completed all its steps.
func outcome(plan Plan, err error) upkeep.Outcome {
	done := err == nil || plan.Err != nil && errors.Is(err, plan.Err)
	switch {
	case errors.Is(err, errMoved):
		return upkeep.Overtaken
	case done && plan.Restores():
		return upkeep.Restored
	case done && len(plan.steps) > 0:
		return upkeep.Wrote
	case errors.Is(err, ErrWaiting) || errors.Is(err, ErrRefused):
		return upkeep.Waiting
	case err != nil:
		return upkeep.Failed
	}
	return upkeep.Right
}

// Tell reports what is new.
func (k *keeper) Tell(result upkeep.Result, pace upkeep.Pace) {
	plan, err := k.plan, result.Err
	if k.ended {
		return
	}
	defer k.tellFight(pace)
	switch result.Outcome {
	case upkeep.Overtaken:
	case upkeep.Waiting:
		k.say(err.Error(), Waiting{plan, err})
	case upkeep.Failed:
		k.say(err.Error(), Failed{plan, err, pace.Pause})
	case upkeep.Right:
		k.say("settled in "+plan.File, Settled{plan})
	case upkeep.Wrote:
		k.said = ""
		if plan.Change != nil {
			k.o.OnEvent(Installed{plan})
		}
	case upkeep.Restored:
		k.said = ""
		k.o.OnEvent(Restored{Plan: plan, File: plan.Change.File, By: plan.Change.By, Count: pace.Count})
	}
}

// tellFight reports a fight when that is news. A pass that restored nothing also begins one if its
// writes must be paused.
func (k *keeper) tellFight(pace upkeep.Pace) {
	if pace.Fight != upkeep.FightBegan && pace.Fight != upkeep.FightGoesOn {
		return
	}
	e := Fighting{File: k.plan.File, Count: pace.Count, Pause: pace.Pause}
	if change := k.plan.Change; change != nil {
		e.File, e.By = change.File, change.By
	}
	k.o.OnEvent(e)
}

// say reports an event unless it repeats the last one.
func (k *keeper) say(what string, event Event) {
	if what != k.said {
		k.said = what
		k.o.OnEvent(event)
	}
}

// unwatched reports a change in whether the directories are watched.
func (k *keeper) unwatched(err error) {
	if (err != nil) != k.unseen {
		k.unseen = err != nil
		k.o.OnEvent(Unwatched{err})
	}
}

// lost reports that events are missing; a later report follows once everything is watched again.
func (k *keeper) lost(err error) {
	k.o.OnEvent(Unwatched{err})
	k.unseen = true
}
