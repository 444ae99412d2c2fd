// SPDX-License-Identifier: Apache-2.0

package upkeep

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const patience = time.Minute

// fakeTask has passes with results from the test.
type fakeTask struct {
	t         *testing.T
	directory string
	begun     chan struct{} // receives once per pass
	results   chan Result   // passes wait for it; closed: Right from now on
	told      chan Pace
}

func newTask(t *testing.T) *fakeTask {
	t.Helper()
	return &fakeTask{t: t, directory: t.TempDir(), begun: make(chan struct{}, 1000), results: make(chan Result, 1000), told: make(chan Pace, 1000)}
}

func (f *fakeTask) Directories() []string       { return []string{f.directory} }
func (f *fakeTask) Concerns(path string) bool   { return path == filepath.Join(f.directory, "file") }
func (f *fakeTask) Observe(_ Result, pace Pace) { f.told <- pace }
func (f *fakeTask) Pass(ctx context.Context) Result {
	f.begun <- struct{}{}
	select {
	case r := <-f.results:
		return r
	case <-ctx.Done():
		return Result{}
	}
}

func (f *fakeTask) touch(name string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.directory, name), nil, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// wantPasses has passes begin and end with the outcomes, each reported before the next one.
func (f *fakeTask) wantPasses(outcomes ...Outcome) (paces []Pace) {
	f.t.Helper()
	for _, o := range outcomes {
		f.wantBegun()
		f.results <- Result{Outcome: o, Err: errors.New("reason")}
		paces = append(paces, <-f.told)
	}
	return paces
}

func (f *fakeTask) wantBegun() {
	f.t.Helper()
	select {
	case <-f.begun:
	case <-time.After(patience):
		f.t.Fatal("no pass begins")
	}
}

func run(t *testing.T, o Options, tasks ...*fakeTask) *Loop {
	t.Helper()
	var all []Task
	for _, f := range tasks {
		all = append(all, f)
	}
	l := New(o, all...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

// TestWhatWasWrittenIsLookedAt checks that the task and those after it are due after each write.
func TestWhatWasWrittenIsLookedAt(t *testing.T) {
	t.Parallel()
	for _, o := range []Outcome{Wrote, Restored, Overtaken} {
		t.Run(o.String(), func(t *testing.T) {
			t.Parallel()
			first, second := newTask(t), newTask(t)
			run(t, Options{}, first, second)
			first.wantBegun()
			first.results <- Result{}
			second.wantPasses(Right)
			first.touch("file")
			first.wantPasses(o)
			second.wantPasses(Right)
			first.wantPasses(Right)
		})
	}
}

// TestLooksArePaced changes a file continuously while the clock is stopped: the task is looked at
// a number of times, and once more when the clock continues.
func TestLooksArePaced(t *testing.T) {
	t.Parallel()
	first, second := newTask(t), newTask(t)
	close(first.results)
	close(second.results)
	begun, ahead := time.Now(), atomic.Int64{}
	run(t, Options{Now: func() time.Time { return begun.Add(time.Duration(ahead.Load())) }}, first, second)
	second.wantBegun()
	for range looksAtOnce {
		first.touch("file")
		first.wantBegun()
	}
	for range 10 {
		first.touch("file")
	}
	second.touch("file")
	second.wantBegun() // now the earlier events have been seen
	if n := len(first.begun); n > 0 {
		t.Fatalf("%d looks more than %d at once", n, looksAtOnce)
	}
	ahead.Store(int64(lookEvery))
	first.wantBegun()
}

// TestFirstPassesAreInOrder checks that the second task finds what the first one provides.
func TestFirstPassesAreInOrder(t *testing.T) {
	t.Parallel()
	for range 20 {
		first, second := newTask(t), newTask(t)
		now := time.Now()
		run(t, Options{Now: func() time.Time { return now }}, first, second) // the clock hides that the first takes long
		first.wantBegun()
		if len(second.begun) > 0 {
			t.Fatal("the second task began before the first one had ended")
		}
		first.results <- Result{}
		second.wantPasses(Right)
	}
}

// TestNoTaskWaitsForAnother has the pass of one task hang.
func TestNoTaskWaitsForAnother(t *testing.T) {
	t.Parallel()
	first, second := newTask(t), newTask(t)
	run(t, Options{}, first, second)
	first.wantBegun()
	second.wantPasses(Right)
	for range 3 {
		second.touch("file")
		second.wantPasses(Right)
	}
}

// TestChangesWhileATaskIsRunning checks that they count after its pass, despite a pause.
func TestChangesWhileATaskIsRunning(t *testing.T) {
	t.Parallel()
	f, other := newTask(t), newTask(t)
	run(t, Options{}, f, other)
	f.wantPasses(Right)
	other.wantPasses(Right)
	f.touch("file")
	f.wantBegun()
	f.touch("file.tmp")
	other.touch("file") // seen after the one before
	other.wantPasses(Right)
	f.results <- Result{Outcome: Failed}
	if pace := <-f.told; pace.Pause != time.Second {
		t.Errorf("%+v", pace)
	}
	f.wantBegun()
	f.touch("file")
	other.touch("file")
	other.wantPasses(Right)
	f.results <- Result{Outcome: Failed}
	<-f.told
	f.wantPasses(Right) // long before the pause is over
}

func TestPauses(t *testing.T) {
	t.Parallel()
	for _, o := range []Outcome{Restored, Wrote, Overtaken} {
		t.Run(o.String(), func(t *testing.T) {
			t.Parallel()
			f := newTask(t)
			run(t, Options{}, f)
			paces := f.wantPasses(slices.Repeat([]Outcome{o}, 10)...)
			if paces[8].Pause != 0 || paces[9].Pause <= 0 {
				t.Errorf("pauses %v", paces)
			}
			if !slices.ContainsFunc(paces, func(p Pace) bool { return p.Fight == FightBegan }) {
				t.Errorf("no fight is reported: %v", paces)
			}
			f.wantPasses(Right) // when it is over
		})
	}
}

// undoneTask is restored at each look, at an interval, a number of times. Then it is right.
type undoneTask struct {
	quietTask

	restores int
	every    time.Duration
	bucket   Bucket
	times    []time.Time
	told     []Pace
}

func (h *undoneTask) Pace() Bucket             { return h.bucket }
func (h *undoneTask) Observe(_ Result, p Pace) { h.told = append(h.told, p) }
func (h *undoneTask) Pass(context.Context) Result {
	if h.restores == 0 {
		return Result{}
	}
	if n := len(h.times); h.every > 0 && n > 0 && time.Since(h.times[n-1]) < h.every {
		return Result{Again: h.times[n-1].Add(h.every)}
	}
	h.times = append(h.times, time.Now())
	h.restores--
	return Result{Outcome: Restored}
}

// TestAFight has another program undo things for long, at several intervals. Each time the task
// restores at once as long as that is no more often than twice a second; a faster program costs no
// more than that.
func TestAFight(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		task    undoneTask
		took    time.Duration
		summary int
	}{
		"every five seconds":     {undoneTask{restores: 361, every: 5 * time.Second, bucket: Restores()}, 30 * time.Minute, 29},
		"every second":           {undoneTask{restores: 601, every: time.Second, bucket: Restores()}, 10 * time.Minute, 9},
		"without a pause":        {undoneTask{restores: 10 + 1200, bucket: Restores()}, 10 * time.Minute, 10},
		"without one, at a pace": {undoneTask{restores: 3 + 120, bucket: Bucket{Burst: 3, Every: 5 * time.Second}}, 10 * time.Minute, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				task := test.task
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				New(Options{}, &task).Run(ctx)
				if took := task.times[len(task.times)-1].Sub(task.times[0]); took != test.took || task.restores > 0 {
					t.Errorf("%d restores within %v, want that to take %v", len(task.times), took, test.took)
				}
				news := map[Fight]int{}
				for _, p := range task.told {
					news[p.Fight]++
				}
				delete(news, NoNews)
				want := map[Fight]int{FightBegan: 1, FightGoesOn: test.summary, FightOver: 1}
				if diff := cmp.Diff(want, news); diff != "" {
					t.Errorf("what was told of the fight (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestNoFight has a task restored now and then.
func TestNoFight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		task := undoneTask{restores: 20, every: 2 * time.Minute, bucket: Restores()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		New(Options{}, &task).Run(ctx)
		for _, p := range task.told {
			if p.Fight != NoNews || p.Pause != 0 {
				t.Errorf("told %+v", p)
			}
		}
		if task.restores > 0 {
			t.Errorf("%d restores are left", task.restores)
		}
	})
}

// TestAgain checks that a time alone causes a look.
func TestAgain(t *testing.T) {
	t.Parallel()
	f, g := newTask(t), newTask(t)
	run(t, Options{Interval: time.Millisecond}, f)
	f.wantPasses(Right, Waiting, Right)
	run(t, Options{}, g)
	g.wantBegun()
	g.results <- Result{Outcome: Waiting, Again: time.Now().Add(time.Millisecond)}
	<-g.told
	g.wantPasses(Right)
}

func TestLostEvents(t *testing.T) {
	t.Parallel()
	f := newTask(t)
	lost := make(chan error, 1)
	l := run(t, Options{Lost: func(err error) { lost <- err }}, f)
	f.wantPasses(Right)
	l.watches.Errors() <- errors.New("overflow")
	if err := <-lost; err == nil {
		t.Error("no reason")
	}
	f.wantPasses(Right)
}

func TestMissingDirectories(t *testing.T) {
	t.Parallel()
	f := newTask(t)
	f.directory = filepath.Join(f.directory, "late")
	unwatched := make(chan error, 1000)
	run(t, Options{Unwatched: func(err error) { unwatched <- err }}, f)
	f.wantPasses(Right)
	if err := <-unwatched; !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := os.Mkdir(f.directory, 0o700); err != nil {
		t.Fatal(err)
	}
	f.wantPasses(Right)
	for <-unwatched != nil {
	}
	f.touch("file")
	for len(f.begun) > 0 {
		f.wantPasses(Right)
	}
}

// TestTheEndWaitsForPasses checks that no pass continues after Run.
func TestTheEndWaitsForPasses(t *testing.T) {
	t.Parallel()
	f, g := newTask(t), newTask(t)
	l := New(Options{}, f, g)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	f.wantBegun()
	cancel()
	<-done
	if len(f.told) != 1 {
		t.Errorf("told %d times", len(f.told))
	}
}

// TestOneTimer simulates a day: while everything is right, a loop only looks once in each interval.
func TestOneTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tasks := []*quietTask{{}, {}, {}}
		turns := 0
		l := New(Options{Interval: 10 * time.Minute, Unwatched: func(error) { turns++ }}, tasks[0], tasks[1], tasks[2])
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour+time.Minute)
		defer cancel()
		l.Run(ctx)
		for _, q := range tasks {
			if q.passes != 1+24*6 {
				t.Errorf("%d passes in a day", q.passes)
			}
		}
		if most := 4 * (1 + 24*6) * len(tasks); turns > most { // one to begin a pass, one to record its end
			t.Errorf("%d turns of the loop, for %d passes", turns, len(tasks)*tasks[0].passes)
		}
	})
}

type quietTask struct{ passes int }

func (q *quietTask) Directories() []string       { return nil }
func (q *quietTask) Concerns(string) bool        { return false }
func (q *quietTask) Observe(Result, Pace)        {}
func (q *quietTask) Pass(context.Context) Result { q.passes++; return Result{} }
