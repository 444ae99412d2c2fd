// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist/installer"
	"github.com/meshcni/meshcni/examples/install-cni/internal/health"
	"github.com/meshcni/meshcni/internal/testing/testlog"
	"github.com/meshcni/meshcni/internal/upkeep"
)

func TestRunsAtTheStartAndAfterItsOwnWork(t *testing.T) {
	t.Parallel()
	p := newPart(t, "a", changes, nothing)
	start(t, p)
	p.wantRuns(t, 2)
	p.wantReasons(t)
}

func TestRunsOnAnEvent(t *testing.T) {
	t.Parallel()
	p, other := newPart(t, "a", nothing), newPart(t, "b", nothing)
	start(t, p, other)
	p.wantRuns(t, 1)
	other.wantRuns(t, 1)
	p.touch(t, "ignored")
	p.touch(t, "file")
	p.wantRuns(t, 1)
	other.wantQuiet(t)
}

func TestLaterPartsRunAgainWhenAnEarlierOneWrote(t *testing.T) {
	t.Parallel()
	first, second := newPart(t, "first", changes, nothing), newPart(t, "second", fails, nothing)
	start(t, first, second)
	first.wantRuns(t, 2)
	second.wantRuns(t, 2)
	second.wantReasons(t)
}

func TestAFailureIsTriedAgainAtOnceOnAnEvent(t *testing.T) {
	t.Parallel()
	wantEventToHelp(t, fails, "a: broken")
}

func TestAFailureIsTriedAgainByItself(t *testing.T) {
	t.Parallel()
	p := newPart(t, "a", fails, nothing)
	start(t, p)
	p.wantRuns(t, 2)
	p.wantReasons(t)
}

func TestWaitingEndsWithAnEvent(t *testing.T) {
	t.Parallel()
	wantEventToHelp(t, waits, "a: waiting for a friend")
}

// wantEventToHelp runs a part whose first pass has this result and reason, and checks that the pass
// after an event makes it ready.
func wantEventToHelp(t *testing.T, first result, reason string) {
	t.Helper()
	p := newPart(t, "a", first, nothing)
	start(t, p)
	p.wantRuns(t, 1)
	p.wantReasons(t, reason)
	p.touch(t, "file")
	p.wantRuns(t, 1)
	p.wantReasons(t)
}

func TestAFightIsPaused(t *testing.T) {
	t.Parallel()
	p := newPart(t, "a", nothing)
	p.then = changes
	start(t, p)
	p.wantRuns(t, 1)
	p.touch(t, "file")
	p.wantRuns(t, 11) // ten restores that are free, and the first that is not
	p.wantReasons(t, "a: another program keeps changing what this one installs; looking again after a pause")
	p.wantRuns(t, 1) // by itself, after the pause
}

func TestAFightBeforeTheFirstSuccessIsPaused(t *testing.T) {
	t.Parallel()
	p := newPart(t, "a")
	p.then = changes
	start(t, p)
	p.wantRuns(t, 11)
	p.wantReasons(t, "a: another program keeps changing what this one installs; looking again after a pause")
	p.wantRuns(t, 1) // by itself, after the pause
}

// TestAPanicConcernsOnePart: one part panics, and others go on. If it does not stop, a new process
// is requested.
func TestAPanicConcernsOnePart(t *testing.T) {
	t.Parallel()
	always, once, other := newPart(t, "always"), newPart(t, "once", panics, nothing), newPart(t, "other", nothing)
	always.then = panics
	start(t, always, once, other)
	other.wantRuns(t, 1)
	once.wantRuns(t, 2)
	once.wantReasons(t, "always: panic: broken")
	for range 2 {
		always.wantRuns(t, 1)
		always.touch(t, "file")
	}
	always.wait(t, "unhealthy", func() bool { return always.state.Conditions()[0].Unhealthy != "" })
	all := always.state.Conditions()
	if all[0].Restarts < 3 || !strings.HasSuffix(all[0].Unhealthy, "times in a row") || all[1].Restarts != 1 || all[1].Unhealthy != "" {
		t.Errorf("conditions %+v", all)
	}
}

// TestAPartThatHangs does not stop other parts, neither at the start nor later.
func TestAPartThatHangs(t *testing.T) {
	t.Parallel()
	first, second := newPart(t, "first", hangs), newPart(t, "second", nothing)
	start(t, first, second)
	first.wantRuns(t, 1)
	second.wantRuns(t, 1)
	second.touch(t, "file")
	second.wantRuns(t, 1)
	second.wantReasons(t, "first: starting")
}

func TestADirectoryThatIsMadeAgainIsWatchedAgain(t *testing.T) {
	t.Parallel()
	p := newPart(t, "a", nothing)
	start(t, p)
	p.wantRuns(t, 1)
	if err := os.Rename(p.directory, p.directory+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	p.wantRuns(t, 1)
	p.wantReasons(t) // including the watch, which may take a second attempt
	p.drain()
	p.touch(t, "file")
	p.wantRuns(t, 1)
}

func TestADirectoryThatAppearsLateIsWatched(t *testing.T) {
	t.Parallel()
	p := newPart(t, "a", nothing)
	if err := os.Remove(p.directory); err != nil {
		t.Fatal(err)
	}
	start(t, p)
	p.wantRuns(t, 1)
	if reasons := strings.Join(p.state.Reasons(), ""); !strings.Contains(reasons, "watch "+p.directory) {
		t.Errorf("reasons = %q, want the missing directory", reasons)
	}
	if err := os.Mkdir(p.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	p.wantRuns(t, 1)
	p.wantReasons(t)
}

// TestAFileThatIsBeingWritten does not make a part unready that was ready, unless it takes too
// long.
func TestAFileThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	p := newPart(t, "a", nothing, unfinished, unfinished, changes, nothing)
	start(t, p)
	p.wantRuns(t, 1)
	p.wantReasons(t)
	p.touch(t, "file")
	p.wantRuns(t, 4) // by itself
	p.wantReasons(t)
	p.wait(t, "the last pass is observed", func() bool { return strings.Count(p.log.String(), "outcome=") >= 5 })
	if _, since, _ := strings.Cut(p.log.String(), "msg=ready"); strings.Contains(since, "not ready") {
		t.Errorf("the part was not ready meanwhile:\n%s", since)
	}

	p = newPart(t, "a", unfinished, nothing)
	start(t, p)
	p.wait(t, "a part that was never ready says why", func() bool {
		return strings.Contains(p.log.String(), "waiting for a program to finish writing")
	})
	p.wantReasons(t) // by itself

	p = newPart(t, "a")
	p.state, p.log = health.NewState(), testlog.New()
	one := &task{Part: p, state: p.state, log: slog.New(slog.DiscardHandler), right: true}
	half := upkeep.Result{Outcome: upkeep.Waiting, Err: unfinishedError{time.Now()}, Again: time.Now()}
	p.state.Set("a", "")
	if one.Observe(half, upkeep.Pace{}); p.state.Reasons() != nil {
		t.Errorf("at first: %q", p.state.Reasons())
	}
	one.unfinished = one.unfinished.Add(-finishWithin)
	if one.Observe(half, upkeep.Pace{}); len(p.state.Reasons()) != 1 {
		t.Errorf("after a while: %q", p.state.Reasons())
	}
	if one.Observe(half, upkeep.Pace{}); len(p.state.Reasons()) != 1 {
		t.Errorf("a part that was unready is ready by a file that is not written: %q", p.state.Reasons())
	}
	p.results = []result{distant}
	if again := one.Pass(t.Context()).Again; time.Until(again) > finishWithin {
		t.Errorf("it looks again at %v", again)
	}
}

// unfinishedError is the error of a pass that has found a file half-written.
type unfinishedError struct{ again time.Time }

func (unfinishedError) Error() string      { return "waiting for a program to finish writing" }
func (unfinishedError) Unwrap() error      { return installer.ErrWaiting }
func (e unfinishedError) Again() time.Time { return e.again }

// result is the result of a fake part's run.
type result int

const (
	nothing result = iota
	changes
	fails
	waits
	panics
	hangs      // until the daemon ends
	unfinished // a file is half-written; looks again soon
	distant    // likewise, and the file's time is in the future
)

// fakePart returns a list of results, then always the last of them or then.
type fakePart struct {
	name      string
	directory string
	results   []result
	then      result
	ran       chan struct{}
	state     *health.State
	log       *testlog.Log
}

func newPart(t *testing.T, name string, results ...result) *fakePart {
	t.Helper()
	directory := filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	return &fakePart{name: name, directory: directory, results: results, ran: make(chan struct{}, 1000)}
}

func (p *fakePart) Name() string              { return p.name }
func (p *fakePart) Directories() []string     { return []string{p.directory} }
func (p *fakePart) Concerns(path string) bool { return path == filepath.Join(p.directory, "file") }

func (p *fakePart) Ensure(ctx context.Context) (installer.Result, error) {
	r := p.then
	if len(p.results) > 0 {
		r, p.results = p.results[0], p.results[1:]
	}
	p.ran <- struct{}{}
	switch r {
	case nothing:
	case changes:
		return installer.Restored, nil
	case fails:
		return installer.Right, errors.New("broken")
	case waits:
		return installer.Right, fmt.Errorf("%w for a friend", installer.ErrWaiting)
	case unfinished:
		return installer.Right, unfinishedError{time.Now().Add(10 * time.Millisecond)}
	case distant:
		return installer.Right, unfinishedError{time.Now().Add(time.Hour)}
	case panics:
		panic("broken")
	case hangs:
		<-ctx.Done()
	}
	return installer.Right, nil
}

const patience = testlog.Patience

func (p *fakePart) wantRuns(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		select {
		case <-p.ran:
		case <-time.After(patience):
			t.Fatalf("part %s ran %d times, want %d", p.name, i, n)
		}
	}
}

// wantQuiet checks that no run began; meanwhile the part's daemon has processed later events.
func (p *fakePart) wantQuiet(t *testing.T) {
	t.Helper()
	select {
	case <-p.ran:
		t.Errorf("part %s ran without a reason", p.name)
	default:
	}
}

func (p *fakePart) drain() {
	for len(p.ran) > 0 {
		<-p.ran
	}
}

func (p *fakePart) touch(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.directory, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantReasons waits until the daemon has logged these reasons.
func (p *fakePart) wantReasons(t *testing.T, reasons ...string) {
	t.Helper()
	p.wait(t, fmt.Sprintf("reasons %q", reasons), func() bool { return cmp.Equal(p.state.Reasons(), reasons) })
}

// wait waits for something that is logged.
func (p *fakePart) wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !p.log.Await(patience, condition) {
		t.Fatalf("%s: not within %v, but %+v", what, patience, p.state.Conditions())
	}
}

// start runs a keeper until the test ends.
func start(t *testing.T, parts ...*fakePart) {
	t.Helper()
	state, log := health.NewState(), testlog.New()
	var all []installer.Part
	for _, p := range parts {
		p.state, p.log = state, log
		all = append(all, p)
	}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	state.LogTo(logger)
	k := New(state, logger, all...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}
