// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/meshcni/meshcni/internal/backoff"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/watch"
)

// Run keeps the plugin in place until the context ends, which is its only way to end. It removes nothing then: the next version takes over the
// claim. Between changes it sleeps; [Options].Interval is its only timer while everything is in place.
func (r *Reconciler) Run(ctx context.Context) {
	l := &loop{
		Reconciler: r, due: true, watches: watch.New(r.directories("")...),
		fights: backoff.Fights(), failures: backoff.Failures(), writes: backoff.Fights(),
	}
	defer l.watches.Close()
	for ctx.Err() == nil {
		l.watch()
		if l.due && !l.next().After(r.o.Now()) {
			l.pass(ctx)
			continue // what the pass itself has changed may need a watch
		}
		l.wait(ctx)
	}
}

// directories are those to watch: the configurations', those that Ready depends on, and a network's if a drop-in is there.
func (r *Reconciler) directories(file string) []string {
	directories := append([]string{filepath.Clean(r.o.Directory)}, r.o.Also...)
	if above := path.Dir(file); above != "." && file != "" {
		directories = append(directories, filepath.Join(r.o.Directory, above))
	}
	return directories
}

// loop is a Run.
type loop struct {
	*Reconciler
	watches  *watch.Watches
	unseen   bool // the watches were last said to be missing
	due      bool
	checkAt  time.Time // the slow periodic check, or what a plan asked for
	pausedTo time.Time // after restores that followed each other too fast
	retryAt  time.Time // after a failure
	fights   backoff.Series
	failures backoff.Series
	writes   backoff.Series // passes that others overtook
	said     string         // what was last reported, so that nothing is said twice
}

// watch puts watches where they are missing. Everything is looked at whenever one was missing: there have been no events of it.
func (l *loop) watch() {
	missed, err := l.watches.Ensure(l.o.Now())
	if (err != nil) != l.unseen {
		l.unseen = err != nil
		l.o.Observe(Unwatched{err})
	}
	if missed {
		l.changed()
	}
}

// pass looks once, and draws the conclusions.
func (l *loop) pass(ctx context.Context) {
	l.due, l.retryAt = false, time.Time{}
	plan, err := l.ensure(ctx)
	now := l.o.Now()
	l.plan(plan, now)
	done := err == nil || plan.Err != nil && errors.Is(err, plan.Err)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errMoved):
		l.overtaken(now)
	case done && len(plan.Steps) > 0:
		l.wrote(plan, now)
	case errors.Is(err, ErrWaiting) || errors.Is(err, ErrRefused):
		l.failures.Reset()
		l.say(err.Error(), Waiting{plan, err})
	case err != nil:
		pause := l.failures.Next(now)
		l.due, l.retryAt = true, now.Add(pause)
		l.say(err.Error(), Failed{plan, err, pause})
	default:
		l.failures.Reset()
		l.say("settled in "+plan.File, Settled{plan})
	}
}

// plan takes from a plan what is to be watched, and when to look again.
func (l *loop) plan(plan Plan, now time.Time) {
	l.checkAt = time.Time{}
	if l.o.Interval > 0 {
		l.checkAt = now.Add(l.o.Interval)
	}
	if !plan.Again.IsZero() {
		l.checkAt = plan.Again
	}
	if plan.File != "" {
		l.watches.Set(l.directories(plan.File)...)
	}
}

// say reports what isn't the same as before.
func (l *loop) say(what string, event Event) {
	if what != l.said {
		l.said = what
		l.o.Observe(event)
	}
}

// overtaken looks again at once, and then, if somebody always is faster, after pauses.
func (l *loop) overtaken(now time.Time) {
	l.due = true
	if pause := l.writes.Next(now); pause > 0 {
		l.retryAt = now.Add(pause)
	}
}

// wrote has the directory looked at again: at once, unless this is a fight.
func (l *loop) wrote(plan Plan, now time.Time) {
	l.failures.Reset()
	l.due, l.said = true, ""
	l.watches.Soon() // a directory may be there now
	change := plan.Change
	if change == nil {
		return
	}
	if !change.Hostile() {
		l.o.Observe(Installed{plan})
		return
	}
	pause := l.fights.Next(now)
	l.o.Observe(Restored{Plan: plan, File: change.File, By: change.By, Count: l.fights.Count()})
	if pause > 0 {
		l.pausedTo = now.Add(pause)
		l.o.Observe(Fighting{File: change.File, By: change.By, Count: l.fights.Count(), Pause: pause})
	}
}

// next is when a pass that is due may run.
func (l *loop) next() time.Time {
	if l.retryAt.After(l.pausedTo) {
		return l.retryAt
	}
	return l.pausedTo
}

// earliest is when something is to be done although nothing happens.
func (l *loop) earliest() (at time.Time, ok bool) {
	at, ok = l.watches.Retry()
	consider := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if l.due {
		consider(l.next())
	}
	if !l.checkAt.IsZero() {
		consider(l.checkAt)
	}
	return at, ok
}

// wait returns when there may be something to do: something changed, or a time has come.
func (l *loop) wait(ctx context.Context) {
	var wake <-chan time.Time
	if at, ok := l.earliest(); ok {
		timer := time.NewTimer(at.Sub(l.o.Now()))
		defer timer.Stop()
		wake = timer.C
	}
	select {
	case <-ctx.Done():
	case <-wake:
		if !l.checkAt.IsZero() && !l.checkAt.After(l.o.Now()) {
			l.due = true
		}
	case event := <-l.watches.Events():
		l.note(event)
	case err := <-l.watches.Errors():
		l.lost(err)
	}
	for { // whatever has come with it
		select {
		case event := <-l.watches.Events():
			l.note(event)
		case err := <-l.watches.Errors():
			l.lost(err)
		default:
			return
		}
	}
}

// note takes an event to heart if it may matter: of a file that runtimes load, or of what Ready depends on.
func (l *loop) note(event fsnotify.Event) {
	name := filepath.Base(event.Name)
	above := filepath.Dir(event.Name)
	if filesystem.IsTemporary(name) || (above == filepath.Clean(l.o.Directory) && !relevant(name) && !l.watches.Has(event.Name)) {
		return
	}
	l.changed()
}

// lost has everything looked at: events are missing.
func (l *loop) lost(err error) {
	l.o.Observe(Unwatched{err})
	l.unseen = true // and they are watched again, as the next look at the watches will say
	l.changed()
}

// changed has everything looked at. A failure isn't waited out then: its reason may just have gone.
func (l *loop) changed() { l.due, l.retryAt = true, time.Time{} }
