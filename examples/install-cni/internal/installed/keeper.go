// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// Keeper keeps pieces right. Create it with [New].
type Keeper struct {
	loop  *upkeep.Loop
	state *health.State
	log   *slog.Logger
}

// checkInterval is how often a piece looks although nothing has changed: rare enough to cost
// nothing.
const checkInterval = 10 * time.Minute

// New returns a keeper for the pieces, in the order in which they depend on each other. It reports
// their state to state. A piece is a part of the installer or something like it; it may define the
// pace of its writes ([upkeep.Paced]).
func New(state *health.State, log *slog.Logger, pieces ...installer.Part) *Keeper {
	k := &Keeper{state: state, log: log}
	tasks := make([]upkeep.Task, 0, len(pieces))
	for _, p := range pieces {
		tasks = append(tasks, &task{Part: p, state: state, log: log.With("part", p.Name())})
		state.Set(p.Name(), "starting")
	}
	state.Set("watch", "starting")
	k.loop = upkeep.New(upkeep.Options{Interval: checkInterval, Unwatched: k.unwatched, Lost: k.lost}, tasks...)
	return k
}

// Run keeps the pieces right until the context ends.
func (k *Keeper) Run(ctx context.Context) { k.loop.Run(ctx) }

func (k *Keeper) unwatched(err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	if k.state.Set("watch", reason) && err != nil {
		k.log.Error("cannot watch for changes; looking from time to time instead", "error", err)
	}
}

func (k *Keeper) lost(err error) { k.log.Warn("events were lost; looking at everything", "error", err) }

// task is a piece in the loop; it reports the piece's state.
type task struct {
	installer.Part
	state  *health.State
	log    *slog.Logger
	panics int  // in a row
	ended  bool // the last pass failed at the end of the daemon
	fights bool // another program keeps undoing what the piece does
	logged int  // restores at the last report
	right  bool // the piece was right, and nothing else was reported since

	unfinished time.Time // since when another program is writing a file; zero: no program is
}

// finishWithin is how long another program may take to write a file before the piece counts as not
// ready. Programs that do not write a file by renaming take a moment.
const finishWithin = 5 * time.Second

func (t *task) Pace() upkeep.Bucket { return upkeep.PaceOf(t.Part) }

// Pass runs the piece once. A panic is a failure, and does not affect other pieces.
func (t *task) Pass(ctx context.Context) (result upkeep.Result) {
	defer func() {
		if value := recover(); value != nil {
			t.panics++
			t.log.Error("a part panicked: this is a defect, please report it", "panic", value, "stack", string(debug.Stack()))
			result = upkeep.Result{Outcome: upkeep.Failed, Err: fmt.Errorf("panic: %v", value)}
		}
	}()
	did, err := t.Ensure(ctx)
	t.panics, t.ended = 0, err != nil && ctx.Err() != nil
	result = upkeep.Result{Err: err, Outcome: map[installer.Result]upkeep.Outcome{
		installer.Right: upkeep.Right, installer.Wrote: upkeep.Wrote, installer.Restored: upkeep.Restored, installer.Overtaken: upkeep.Overtaken,
	}[did]}
	var later interface{ Again() time.Time }
	if errors.As(err, &later) {
		result.Again = later.Again()
		if most := time.Now().Add(finishWithin); result.Again.After(most) { // the file's time is in the future
			result.Again = most
		}
	}
	switch {
	case errors.Is(err, installer.ErrSuperseded) || errors.Is(err, installer.ErrWaiting):
		result.Outcome = upkeep.Waiting
	case err != nil:
		result.Outcome = upkeep.Failed
	}
	return result
}

// mostPanics is how many panics in a row require a new process.
const mostPanics = 3

// Observe records the piece's state, and logs what is new.
func (t *task) Observe(result upkeep.Result, pace upkeep.Pace) {
	err := result.Err
	t.log.Debug("looked", "outcome", result.Outcome.String())
	t.logFight(pace)
	switch {
	case t.ended: // caused by the end of the daemon
	case t.isBeingWritten(result):
		return
	case t.panics > 0:
		unhealthy := ""
		if t.panics >= mostPanics {
			unhealthy = fmt.Sprintf("it panicked %d times in a row", t.panics)
		}
		t.state.Failed(t.Name(), err.Error(), unhealthy)
	case errors.Is(err, installer.ErrSuperseded): // the claim has logged it
		t.state.Set(t.Name(), err.Error())
	case result.Outcome == upkeep.Waiting:
		t.logWaiting(result)
	case result.Outcome == upkeep.Failed:
		if t.state.Set(t.Name(), err.Error()) {
			t.log.Error("failed; trying again until it works", "error", err)
		}
	case result.Outcome == upkeep.Right:
		t.state.Set(t.Name(), "")
		t.right = true
		return
	case pace.Pause > 0:
		t.state.Set(t.Name(), "another program keeps changing what this one installs; looking again after a pause")
	}
	t.right = t.right && err == nil
}

// isBeingWritten reports whether the piece only lacks a file that another program is writing at
// this moment. A piece that was right stays ready meanwhile, for a bounded time. A piece over which
// two programs fight stays as it is, because the other program writes again and again. A piece that
// a newer daemon keeps waits for no file.
func (t *task) isBeingWritten(result upkeep.Result) bool {
	if result.Outcome != upkeep.Waiting || result.Again.IsZero() || errors.Is(result.Err, installer.ErrSuperseded) {
		t.unfinished = time.Time{}
		return false
	}
	now := time.Now()
	if t.unfinished.IsZero() {
		t.unfinished = now
	}
	return t.fights || t.right && now.Sub(t.unfinished) < finishWithin
}

// logWaiting reports what is missing.
func (t *task) logWaiting(result upkeep.Result) {
	if t.state.Set(t.Name(), result.Err.Error()) {
		t.log.Warn("waiting", "reason", result.Err)
	}
}

// logFight reports another program that keeps undoing what the piece does: when the fight begins,
// once a minute, and when it has ended.
func (t *task) logFight(pace upkeep.Pace) {
	switch pace.Fight {
	case upkeep.NoNews:
	case upkeep.FightBegan:
		t.state.Contest(t.Name(), "another program keeps changing what this one installs; the log has what is known of it")
		t.fights, t.logged = true, pace.Count
		t.log.Warn("another program keeps changing what this one installs; find it, and have it leave our files and entry alone"+
			" (Cilium: cni.exclusive=false; another install-cni: run one only)", "restores", pace.Count, "pause", pace.Pause)
	case upkeep.FightGoesOn:
		t.log.Info("another program still changes what this one installs", "restores", pace.Count-t.logged, "pause", pace.Pause)
		t.logged = pace.Count
	case upkeep.FightOver:
		t.state.Contest(t.Name(), "")
		t.fights = false
		t.log.Info("no other program has changed what this one installs for a minute")
	}
}
