// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"context"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Options configure a [Loop]. With the zero value it works, but never looks without a reason.
type Options struct {
	// Interval is how often to look at a task without a change; never if it is not positive.
	Interval time.Duration
	// Now returns the time; nil means time.Now.
	Now func() time.Time
	// Unwatched, unless it is nil, is called after each attempt to watch the directories: with the
	// reason why changes are not seen, or nil.
	Unwatched func(error)
	// Lost, unless it is nil, is called when the kernel has lost events. All tasks are due then.
	Lost func(error)
}

// Loop runs tasks. Create it with [New].
type Loop struct {
	options Options
	jobs    []*job
	watches *Watches
	ended   chan ended
	begun   time.Time
	running int
}

// job is a task, and when to look at it.
type job struct {
	Task
	directories []string
	due         bool
	running     bool
	missed      bool      // it was due while it was running
	met         []string  // what changed while it was running
	once        bool      // it has been looked at
	pausedTo    time.Time // after writes that followed each other too fast
	retryAt     time.Time // after a failure
	againAt     time.Time // when to look although nothing has changed; zero: never
	pacedTo     time.Time // after passes that followed each other too fast
	looks       Bucket
	writes      Bucket
	quarrel     quarrel
	failures    Series
}

type ended struct {
	job    *job
	result Result
}

// together is how long a task's first pass waits for those of the tasks before it, so that it does
// not miss what they provide.
const together = time.Second

// The pace of passes that follow events. A program that changes files continuously does not cost a
// whole core, and what it undoes is found at most a fiftieth of a second later.
const (
	looksAtOnce = 50
	lookEvery   = 20 * time.Millisecond
)

// New returns a loop of tasks, in the order in which they depend on each other.
func New(o Options, tasks ...Task) *Loop {
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Loop{options: o, watches: NewWatches(), ended: make(chan ended)}
	for _, t := range tasks {
		l.jobs = append(l.jobs, &job{
			Task: t, directories: t.Directories(), due: true,
			looks: Bucket{Burst: looksAtOnce, Every: lookEvery}, writes: PaceOf(t), failures: Failures(),
		})
	}
	return l
}

// Run looks at the tasks until the context ends and the running passes have ended too. A single
// task runs in the caller's goroutine, several in one each.
func (l *Loop) Run(ctx context.Context) {
	defer l.watches.Close()
	l.begun = l.options.Now()
	for ctx.Err() == nil {
		l.watch()
		if !l.start(ctx) {
			l.wait(ctx)
		}
	}
	for l.running > 0 {
		l.finish(<-l.ended)
	}
}

// watch adds missing watches. All tasks are due if a watch, and so its events, was missing.
func (l *Loop) watch() {
	var directories []string
	for _, j := range l.jobs {
		directories = append(directories, j.directories...)
	}
	l.watches.Set(directories...)
	missed, err := l.watches.Ensure(l.options.Now())
	if l.options.Unwatched != nil {
		l.options.Unwatched(err)
	}
	if missed {
		l.all()
	}
}

// start begins the passes that are due. It reports whether a pass has already ended, and so may
// have changed what to watch.
func (l *Loop) start(ctx context.Context) (passed bool) {
	now := l.options.Now()
	for i, j := range l.jobs {
		if !j.due || j.running || l.next(i).After(now) || ctx.Err() != nil {
			continue
		}
		j.due, j.running, j.missed, j.met, j.retryAt = false, true, false, nil, time.Time{}
		j.pacedTo = now.Add(j.looks.Take(now))
		l.running++
		if len(l.jobs) == 1 {
			l.finish(ended{j, j.Pass(ctx)})
			return true
		}
		go func() { l.ended <- ended{j, j.Pass(ctx)} }()
	}
	return false
}

// next returns when a due task may be looked at.
func (l *Loop) next(i int) time.Time {
	j := l.jobs[i]
	at := j.pausedTo
	for _, t := range []time.Time{j.pacedTo, j.retryAt} {
		if t.After(at) {
			at = t
		}
	}
	first := slices.ContainsFunc(l.jobs[:i], func(before *job) bool { return !before.once })
	if held := l.begun.Add(together); !j.once && first && held.After(at) {
		at = held
	}
	return at
}

// finish updates the job after a pass, and reports to the task.
func (l *Loop) finish(e ended) {
	j, now := e.job, l.options.Now()
	l.running--
	j.running, j.once, j.directories = false, true, j.Directories()
	j.againAt = time.Time{}
	if l.options.Interval > 0 {
		j.againAt = now.Add(l.options.Interval)
	}
	if again := e.result.Again; !again.IsZero() {
		j.againAt = again
	}
	pace := l.conclude(j, e.result.Outcome, now)
	if ends := j.quarrel.restores.Ends(); j.quarrel.on && (j.againAt.IsZero() || ends.Before(j.againAt)) {
		j.againAt = ends // even if nothing happens then, the task must learn of the end
	}
	if j.missed || slices.ContainsFunc(j.met, j.isConcerned) {
		j.changed()
	}
	j.Observe(e.result, pace)
}

// conclude decides when to look again.
func (l *Loop) conclude(j *job, outcome Outcome, now time.Time) (pace Pace) {
	if outcome != Failed {
		j.failures.Reset()
	}
	switch outcome {
	case Right, Waiting:
		pace.Fight = j.quarrel.settle(now)
	case Failed:
		pace.Pause = j.failures.Next(now)
		pace.Fight = j.quarrel.settle(now)
		j.due, j.retryAt = true, now.Add(pace.Pause)
	case Overtaken, Wrote, Restored:
		pace.Pause = j.writes.Take(now)
		if outcome == Restored || pace.Pause > 0 {
			pace.Fight = j.quarrel.note(now, pace.Pause > 0)
			pace.Count = j.quarrel.restores.Count()
		}
		l.wrote(j, now.Add(pace.Pause))
	}
	return pace
}

// wrote marks a task to be looked at again, and those that depend on it.
func (l *Loop) wrote(j *job, at time.Time) {
	j.due, j.pausedTo = true, at
	l.watches.Soon() // a directory may exist now
	for _, later := range l.jobs[slices.Index(l.jobs, j)+1:] {
		later.changed() // it may have waited for this
	}
}

// wait returns when there may be work: something changed, a pass ended, or a time has come.
func (l *Loop) wait(ctx context.Context) {
	var wake <-chan time.Time
	if at, ok := l.earliest(); ok {
		timer := time.NewTimer(at.Sub(l.options.Now()))
		defer timer.Stop()
		wake = timer.C
	}
	select {
	case <-ctx.Done():
	case <-wake:
		l.look(l.options.Now())
	case e := <-l.ended:
		l.finish(e)
	case event := <-l.watches.Events():
		l.note(event)
	case err := <-l.watches.Errors():
		l.lost(err)
	}
	for { // also take what has come with it
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

func (l *Loop) look(now time.Time) {
	for _, j := range l.jobs {
		j.due = j.due || (!j.running && !j.againAt.IsZero() && !j.againAt.After(now))
	}
}

// earliest returns when the first task may be looked at, or the watches should be tried again.
func (l *Loop) earliest() (at time.Time, ok bool) {
	at, ok = l.watches.Retry()
	consider := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	for i, j := range l.jobs {
		switch {
		case j.running: // its end wakes the loop
		case j.due:
			consider(l.next(i))
		case !j.againAt.IsZero():
			consider(j.againAt)
		}
	}
	return at, ok
}

// mostMet bounds the events kept for a task that is running.
const mostMet = 1000

// note marks the tasks that an event concerns. A running task is asked after its pass.
func (l *Loop) note(event fsnotify.Event) {
	for _, j := range l.jobs {
		switch {
		case j.running && len(j.met) < mostMet:
			j.met = append(j.met, event.Name)
		case j.running || j.isConcerned(event.Name):
			j.changed()
		}
	}
}

func (j *job) isConcerned(path string) bool {
	return j.Concerns(path) || slices.Contains(j.directories, path)
}

// lost marks all tasks: events are missing.
func (l *Loop) lost(err error) {
	if l.options.Lost != nil {
		l.options.Lost(err)
	}
	l.all()
}

func (l *Loop) all() {
	for _, j := range l.jobs {
		j.changed()
	}
}

// changed marks a task as due. It ends the pause after a failure, whose reason may be gone.
func (j *job) changed() {
	j.missed = j.running
	j.due, j.retryAt = true, time.Time{}
}

// quarrel distinguishes a fight with another program from single restores.
type quarrel struct {
	restores Streak
	on       bool
	told     time.Time
}

const (
	fightFrom = 5           // restores
	tellEvery = time.Minute // while it lasts
)

// note records that a pass restored something, or that its writes are paused.
func (q *quarrel) note(now time.Time, paused bool) Fight {
	count := q.restores.Add(now)
	switch {
	case !q.on && (paused || count >= fightFrom):
		q.on, q.told = true, now
		return FightBegan
	case q.on && now.Sub(q.told) >= tellEvery:
		q.told = now
		return FightGoesOn
	}
	return NoNews
}

// settle ends a fight after a minute of peace.
func (q *quarrel) settle(now time.Time) Fight {
	if !q.on || !q.restores.Over(now) {
		return NoNews
	}
	q.on = false
	return FightOver
}
