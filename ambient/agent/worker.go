// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// Pod is how far the agent is with a pod.
type Pod struct {
	// UID, Namespace and Name identify the pod. The names are empty until they are known.
	UID, Namespace, Name string
	// Wanted is what should become of the pod, and Seen what the agent saw last.
	Wanted ambient.Wanted
	Seen   ambient.Seen
	// Step is the step that is taken, waited for, or failed; empty if the pod is as wanted, and if
	// the agent cannot look at the pod.
	Step ambient.Step
	// Err is the last failure; nil if there is none since the last success.
	Err error
	// Warnings are about the pod's annotations without an effect, as they were when its plan was made.
	Warnings []interception.Warning
	// Since is when Step and Err became what they are.
	Since time.Time
}

// worker does what has to be done for one pod.
type worker struct {
	agent   *Agent
	uid     string
	glances chan struct{} // has a value when it is time to look for the proxy's listeners
	came    chan struct{} // has a value when the plugin has told something
	status  chan struct{} // has a value when the feed tells another status annotation, and nothing else
	notices chan struct{} // has a value when something has changed in the namespace

	questions chan question // is read while the worker waits
	retired   chan struct{} // closed when it works no more

	mu      sync.Mutex
	alert   chan struct{} // closed when there is news
	nudged  bool          // alert was closed since the last pass began
	resting bool          // nothing but news and time is waited for
	handed  []handed      // are not taken yet, oldest first
	state   Pod

	// The rest is the worker's goroutine's.
	pod        ambient.Pod
	annotation roster.Annotation
	event      *event   // the last one
	waiting    []*event // with this namespace, until the pod is as wanted
	namespace  *interception.Netns
	container  string   // the id of the sandbox with this namespace; empty if it is not known
	ended      *sandbox // the last one, which has ended; nil if another one has begun
	plan       *interception.Plan
	fresh      bool // the runtime has just made the open namespace, and nothing was applied there
	watched    bool // changes in the open namespace are noticed
	recorded   bool // the journal may have a record
	recordedIn interception.NetnsID
	damaged    bool // the record that the journal has cannot be read
	noted      notes
	warnings   []interception.Warning
	alone      bool // no rules of Istio's own agent are in the namespace
	former     bool // such rules may be there, and their pod is not wanted
	moved      bool // no rules are there that another dataplane has written
	set        bool // the server was told of the pod
	told       bool // and with the open namespace
	draining   time.Time
	undrained  time.Time     // since when the draining plan is refused; zero if it is not
	missing    time.Time     // since when the proxy's listeners are missing; zero while they are there
	patience   time.Duration // how long they may be missing
	seen       ambient.Seen
	entering   chan error // gets the outcome of entering the pod, beside other steps; nil if none is under way
	drifts     drifts
	began      time.Time // when the agent could begin to enrol the pod
	counted    bool      // its enrolment was counted, or was an earlier agent's
	failures   upkeep.Series
	looks      upkeep.Series
	losses     upkeep.Series
	pace       upkeep.Bucket // of looks after notices
}

func newWorker(a *Agent, uid string) *worker {
	return &worker{
		agent: a, uid: uid, state: Pod{UID: uid, Since: time.Now()},
		glances: make(chan struct{}, 1), came: make(chan struct{}, 1), status: make(chan struct{}, 1), alert: make(chan struct{}),
		notices: make(chan struct{}, 1), pace: upkeep.Restores(), questions: make(chan question), retired: make(chan struct{}),
		failures: roster.Retries(),
		looks:    upkeep.Series{First: time.Millisecond, Most: 250 * time.Millisecond, Calm: time.Minute},
		losses:   upkeep.Series{First: time.Second, Most: time.Minute, Calm: 10 * time.Second},
	}
}

// nudge makes the worker look again, whatever it waits for.
func (w *worker) nudge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.news()
}

// nudgeResting makes the worker look again unless it is at work.
func (w *worker) nudgeResting() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resting {
		w.news()
	}
}

func (w *worker) news() {
	w.nudged = true
	close(w.alert)
	w.alert = make(chan struct{})
}

// hand tells the worker what the plugin has told.
func (w *worker) hand(h handed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handed = append(w.handed, h)
	w.news()
	select {
	case w.came <- struct{}{}:
	default: // it has another one already
	}
}

func (w *worker) current() Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// run looks at the pod and takes steps until there is nothing left to do for it, or the context
// ends.
func (w *worker) run(ctx context.Context) {
	defer close(w.retired)
	defer w.annotation.Stop()
	for {
		alert := w.begin()
		pause, retired := w.passOrRetire(ctx, alert)
		if retired {
			return
		}
		w.rest(true)
		w.wait(ctx, alert, pause)
		w.rest(false)
		if ctx.Err() != nil {
			return
		}
	}
}

// passOrRetire makes a pass, and ends the worker if nothing is left to do after it. It is apart
// from run because a waiting worker keeps run's stack, and a [Pod] there doubles its size.
func (w *worker) passOrRetire(ctx context.Context, alert <-chan struct{}) (pause time.Duration, retired bool) {
	pause, over := w.pass(ctx, alert)
	if !over || !w.agent.retire(w) {
		return pause, false
	}
	w.agent.options.Observe(w.current())
	return 0, true
}

// wait waits for news, until the pause is over, until something has changed in the namespace, or
// until a proxy that serves the pod has lost its listeners, which the kernel does not report.
// Meanwhile it answers questions.
//
// The agent's own steps are among the changes, and so is what undoes a step that has failed. If
// they do not end, the worker goes on at a pace, and not after each of them.
func (w *worker) wait(ctx context.Context, alert <-chan struct{}, pause time.Duration) {
	timer, end := time.NewTimer(pause), time.Now().Add(pause)
	defer timer.Stop()
	notices := w.notices
	for {
		select {
		case <-ctx.Done():
			return
		case <-alert:
			return
		case <-timer.C:
			return
		case <-notices:
			now := time.Now()
			next := w.pace.Take(now)
			if next == 0 {
				return
			}
			notices = nil // the next look sees what follows
			timer.Reset(min(next, end.Sub(now)))
		case q := <-w.questions:
			w.answer(ctx, q)
		case <-w.glances:
			if w.hasLostProxy(ctx) {
				return
			}
		case <-w.status:
			if w.hasOtherStatus() {
				return
			}
		}
	}
}

// hasOtherStatus reports whether the feed has told another status than the worker knew.
func (w *worker) hasOtherStatus() bool {
	before := w.seen.Status
	w.learn()
	return w.seen.Status != before
}

// notice makes the worker look at the pod's namespace, once it waits.
func (w *worker) notice() {
	select {
	case w.notices <- struct{}{}:
	default: // it is to look already
	}
}

// tellStatus makes the worker look at the pod's status annotation, once it waits. If the agent has
// written the status, there is nothing else to look at.
func (w *worker) tellStatus() {
	select {
	case w.status <- struct{}{}:
	default: // it is to look already
	}
}

// hasLostProxy reports whether a proxy that served the pod has lost its listeners. All pods of the
// node are looked at in one go.
func (w *worker) hasLostProxy(ctx context.Context) bool {
	if w.seen.Proxy != ambient.ProxyServes || w.state.Step != "" {
		return false
	}
	listens := false
	err := w.bounded(ctx, func() (err error) {
		listens, err = proxyListens(w.namespace, w.agent.options.Numbers)
		return err
	})
	return err != nil || !listens
}

// glance makes the worker look for the proxy's listeners, if it waits.
func (w *worker) glance() {
	select {
	case w.glances <- struct{}{}:
	default: // it is to look already
	}
}

// begin returns the alert that interrupts the next pass.
func (w *worker) begin() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nudged = false
	return w.alert
}

func (w *worker) rest(resting bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resting = resting
}

// retire ends a worker that has nothing left to do, unless there is news.
func (a *Agent) retire(w *worker) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nudged || len(w.notices) > 0 {
		return false
	}
	if len(w.status) > 0 {
		w.news()
		return false
	}
	delete(a.workers, w.uid)
	close(a.retired)
	a.retired = make(chan struct{})
	a.sets.nudgeToTakeOver()
	return true
}

// errNews ends a wait because there is news.
var errNews = errors.New("there is news of the pod")

// pass looks once and takes steps until one fails or waits. It returns how long to wait before the
// next pass, and whether there is nothing left to do for the pod.
func (w *worker) pass(ctx context.Context, alert <-chan struct{}) (pause time.Duration, over bool) {
	defer func() { _ = w.entered() }() // the next pass sees whether the pod is in the sets
	wanted, known := w.learn()
	if err := w.takeHanded(ctx, alert); err != nil {
		return w.failed(ctx, wanted, ambient.StepOpen, err), false
	}
	if w.awaitsSandbox() && (!known || wanted.Enrolled) {
		pause, over = w.advanceFrom(ctx, alert, withoutSandbox())
		if over {
			pause = w.untilSearch()
		}
		return pause, false // the pod may get another sandbox
	}
	if !known {
		return w.agent.options.Round, false
	}
	networked, err := w.hasNetwork(ctx)
	switch {
	case wanted.Enrolled && err != nil:
		return w.failed(ctx, wanted, ambient.StepOpen, err), false
	case wanted.Enrolled && !networked:
		return w.agent.options.Round, false // the plugin or the feed will tell
	}
	return w.advanceFrom(ctx, alert, wanted)
}

// learn returns what is wanted of the pod, and whether that is known: by the feed or, as long as it
// has not told of the pod, by the record. A retiring agent wants no pod without a record, nor one
// whose record says Leaving.
func (w *worker) learn() (wanted ambient.Wanted, known bool) {
	wanted, pod, known := w.agent.wanted(w.uid)
	if known && pod.UID != "" {
		w.know(pod)
	}
	if !known && w.isKept() {
		return ambient.Wanted{Enrolled: true, Kept: true, Closed: w.agent.options.Closed}, true
	}
	if wanted.Enrolled && w.agent.options.Retiring {
		wanted.Enrolled = w.recorded && !w.noted.leaving
	}
	if o := &w.agent.options; o.Held != nil && wanted.Enrolled != o.Retiring {
		wanted.Held = o.Held(w.uid)
	}
	return wanted, known
}

// hasNetwork reports whether the pod's namespace is open, or its addresses are known.
func (w *worker) hasNetwork(ctx context.Context) (bool, error) {
	if w.namespace != nil {
		return true, nil
	}
	addresses, err := w.lastAddresses(ctx)
	return len(addresses) > 0, err
}

// advanceFrom looks at the pod, and takes the steps that follow.
func (w *worker) advanceFrom(ctx context.Context, alert <-chan struct{}, wanted ambient.Wanted) (pause time.Duration, over bool) {
	if wanted.Enrolled && w.namespace != nil && !w.fresh { // Enrol has just looked at a fresh one
		is, err := w.agent.isMachine(w.uid, w.namespace)
		if err != nil {
			return w.failed(ctx, wanted, "", err), false
		}
		if is && wanted.Kept {
			return w.agent.options.Round, false // the feed will tell enough to decide
		}
		if is {
			return 0, false // the decision about the pod is another one now
		}
	}
	if wanted.Enrolled && w.began.IsZero() {
		w.began = time.Now()
	}
	if err := w.watch(); err != nil {
		return w.failed(ctx, wanted, "", err), false
	}
	if err := w.look(ctx, wanted); err != nil {
		return w.failed(ctx, wanted, "", err), false
	}
	w.findDrift(wanted)
	return w.advance(ctx, alert, wanted)
}

// advance takes the steps that follow from what was seen.
func (w *worker) advance(ctx context.Context, alert <-chan struct{}, wanted ambient.Wanted) (pause time.Duration, over bool) {
	steps := ambient.Next(wanted, w.seen)
	if len(steps) > 0 {
		if err := w.noteLeaving(wanted); err != nil {
			return w.failed(ctx, wanted, steps[0], err), false
		}
	}
	for _, step := range steps {
		w.publish(wanted, step, w.lastError(wanted))
		if ctx.Err() != nil {
			return 0, false // the agent has ended while it told of the step
		}
		if step.Waits() {
			return w.looks.Next(time.Now()), false
		}
		if err := w.take(ctx, alert, step); err != nil {
			return w.failed(ctx, wanted, step, err), false
		}
		w.seen = w.seen.After(step)
		switch step { //nolint:exhaustive // after the others nothing has to be looked at
		case ambient.StepOpen:
			return 0, false // what is in the namespace has to be looked at
		case ambient.StepTell:
			return w.advanceServed(ctx, alert, wanted)
		}
	}
	if err := w.finish(ctx, wanted); err != nil {
		return w.failed(ctx, wanted, "", err), false
	}
	w.failures.Reset()
	w.looks.Reset()
	w.publish(wanted, "", nil)
	w.countSettled(wanted)
	w.settle()
	return w.agent.options.Round, !wanted.Enrolled
}

// finish does what is left when the pod is as wanted: a record that is damaged or older is written
// anew.
func (w *worker) finish(ctx context.Context, wanted ambient.Wanted) error {
	if !wanted.Enrolled {
		return w.forget()
	}
	if err := w.record(false); err != nil || wanted.Kept {
		return err
	}
	if len(w.waiting) > 0 {
		w.publish(wanted, "", w.current().Err)
		w.countSettled(wanted)
		w.settle()
		select { // the runtime starts the pod meanwhile
		case <-time.After(roster.AfterAnswer):
		case <-ctx.Done():
		}
	}
	if !w.watched {
		w.nudge() // to watch the namespace, and see what other programs have changed so far
	}
	err := w.bounded(ctx, func() error {
		if err := w.move(ctx); err != nil {
			return err
		}
		return w.takeOver(ctx)
	})
	w.agent.sets.nudgeToTakeOver()
	return err
}

// advanceServed goes on after the proxy has acknowledged the pod. The rules are as they were seen,
// or as this pass has applied them, so that the proxy's listeners suffice.
func (w *worker) advanceServed(ctx context.Context, alert <-chan struct{}, wanted ambient.Wanted) (pause time.Duration, over bool) {
	var err error
	if w.seen.Proxy, err = w.lookAtProxy(wanted); err != nil {
		return w.failed(ctx, wanted, "", err), false
	}
	if w.seen.Proxy != ambient.ProxyServes {
		return 0, false
	}
	return w.advance(ctx, alert, wanted)
}

// lastError returns the error that is told with the next step: the last one, unless the opposite
// was wanted of the pod then.
func (w *worker) lastError(wanted ambient.Wanted) error {
	last := w.current()
	if last.Wanted.Enrolled != wanted.Enrolled {
		return nil
	}
	return last.Err
}

// failed notes a failure, and returns how long to wait. The end of the agent is none.
func (w *worker) failed(ctx context.Context, wanted ambient.Wanted, step ambient.Step, err error) time.Duration {
	if errors.Is(err, errNews) || ctx.Err() != nil {
		return 0
	}
	w.doubt(wanted, step)
	w.publish(wanted, step, err)
	pause := w.failures.Next(time.Now())
	if step == ambient.StepDrain && !w.undrained.IsZero() { // no longer than the pod's connections would have
		pause = min(pause, max(0, w.agent.options.DrainTimeout-time.Since(w.undrained)))
	}
	return pause
}

// doubt takes the status "enabled" back from a pod that lacks something, and does not get it.
func (w *worker) doubt(wanted ambient.Wanted, step ambient.Step) {
	lacks := step == ambient.StepOpen || step == ambient.StepEnter || step == ambient.StepApply
	if wanted.Enrolled && !wanted.Kept && lacks && w.seen.Status == ambient.StatusEnabled {
		w.seen.Status = ambient.StatusPending
		w.annotate(w.seen.Status)
	}
}

// settle tells those who have handed the namespace over that the pod is as wanted.
func (w *worker) settle() {
	for _, e := range w.waiting {
		close(e.Settled)
	}
	w.waiting = nil
}

// publish notes and tells how far the worker is.
func (w *worker) publish(wanted ambient.Wanted, step ambient.Step, err error) {
	w.note(wanted, step, err)
	w.agent.options.Observe(w.current())
}

func (w *worker) note(wanted ambient.Wanted, step ambient.Step, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if step != w.state.Step || (err == nil) != (w.state.Err == nil) {
		w.state.Since = time.Now()
	}
	w.state.Wanted, w.state.Seen, w.state.Step, w.state.Err = wanted, w.seen, step, err
	w.state.Namespace, w.state.Name, w.state.Warnings = w.pod.Namespace, w.pod.Name, w.warnings
}

// abandon closes what is open, and leaves everything else as it is.
func (w *worker) abandon() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.handed {
		if h.event != nil {
			_ = h.event.namespace.Close() // it was not used
		}
	}
	return w.close()
}
