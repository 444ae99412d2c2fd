// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/ambient/agent/internal/tally"
	"github.com/meshcni/meshcni/internal/notice"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// Agent enrols and withdraws the pods of a node. Its methods may be called concurrently. Create it
// with [New].
type Agent struct {
	options  Options
	watch    *notice.Watch
	host     host
	failures upkeep.Series // of the host
	reported error         // what ObserveHost was called with last
	nudged   chan struct{} // has a value if there is work
	stopped  chan struct{} // closed when Run ends

	mu         sync.Mutex
	running    bool
	roster     roster.Roster
	entries    map[string]*entry
	urgent     []*entry             // the plugin waits for them
	due        map[*entry]time.Time // when to look at them
	hostDue    time.Time            // when to look at the host; zero if there is no reason to
	bare       bool                 // all pods were withdrawn, and nothing of the agent is on the host any more
	kept       map[string]bool      // with Options.Retiring, the pods that had members at the start; nil until they are seen
	retired    chan struct{}        // closed when an entry is gone, or the host was cleared
	proxyState proxyState
}

// New reads the state file, and begins to watch the host. It changes nothing: the caller then calls
// [Agent.Run]. New needs CAP_NET_BROADCAST, unless Options.WithoutNotices is set, and does without
// CAP_NET_RAW (Options.WithoutProbes). The error wraps [ErrOptions], [ErrState], or an error of
// [ambient.NodeNumbers.Validate], [ambient.Policy.Validate] or the kernel.
func New(o Options) (*Agent, error) {
	fail := func(err error) (*Agent, error) { return nil, fmt.Errorf("ambient agent: %w", err) }
	if err := o.validate(); err != nil {
		return fail(err)
	}
	o.setDefaults()
	noted, err := o.readState()
	if err != nil {
		return fail(err)
	}
	a := &Agent{
		options: o, nudged: make(chan struct{}, 1), stopped: make(chan struct{}), roster: roster.New(),
		entries: map[string]*entry{}, due: map[*entry]time.Time{},
		retired: make(chan struct{}), hostDue: time.Now(),
		failures: upkeep.Series{First: 50 * time.Millisecond, Most: o.ListenerRound, Calm: time.Minute},
	}
	a.host.o, a.host.refusals, a.host.intruders = &a.options, refusals{}, intrusions{}
	a.host.none = noted.None
	for _, r := range noted.Proxies {
		r.Proxy.DNS = o.DNS // the plan of the host alone has it
		a.host.proxies = append(a.host.proxies, &proxy{record: r})
	}
	if err := a.openWatch(); err != nil {
		return fail(err)
	}
	a.host.watch = a.watch
	a.host.tally = tally.New(a.host.counter())
	a.openProbes()
	return a, nil
}

// blindRound is how often the host is looked at where changes are not noticed.
const blindRound = 5 * time.Second

// openWatch begins to watch the host. Without the right to, the agent goes on in rounds if the
// caller allows that.
func (a *Agent) openWatch() (err error) {
	a.watch, err = notice.Open()
	if errors.Is(err, os.ErrPermission) && a.options.WithoutNotices != nil {
		a.options.WithoutNotices(err)
		a.watch, a.options.Round = notice.Blind(), min(a.options.Round, blindRound)
		return nil
	}
	if err != nil {
		return err
	}
	if err := a.watch.Add(hostKey, a.options.Host); err != nil {
		return errors.Join(err, a.watch.Close())
	}
	return nil
}

// Run works until the context ends or the feed fails, and returns why. Everything stays as it is,
// and the proxy goes on serving. Run may be called once.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	watching, unwatched := context.WithCancelCause(ctx)
	defer unwatched(nil)
	a.mu.Lock()
	a.running = true
	a.mu.Unlock()
	var parts sync.WaitGroup
	parts.Go(func() { unwatched(a.notice(watching)) })
	parts.Go(func() { a.loop(ctx) })
	err := roster.Follow(watching, a.options.Feed, a.learn)
	a.mu.Lock()
	a.running = false
	a.mu.Unlock()
	close(a.stopped)
	cancel()
	parts.Wait()
	a.mu.Lock()
	for _, e := range a.entries {
		e.annotation.Stop()
	}
	a.mu.Unlock()
	for _, p := range a.host.proxies {
		err = errors.Join(err, a.host.close(p))
	}
	return errors.Join(err, a.host.probes.close(), a.watch.Close())
}

// calm is how long changes on the host are collected before they are looked at. The agent's own
// edits are among them.
const calm = 250 * time.Millisecond

// notice has the host looked at after changes there or in a proxy's namespace.
func (a *Agent) notice(ctx context.Context) error {
	for {
		if _, err := a.watch.Next(ctx); err != nil {
			return fmt.Errorf("watch the node's namespace: %w", err)
		}
		a.mu.Lock()
		a.hostDueLocked(calm)
		a.mu.Unlock()
	}
}

// loop does what is due.
func (a *Agent) loop(ctx context.Context) {
	round, glance := time.NewTicker(a.options.Round), time.NewTicker(a.options.ListenerRound)
	defer round.Stop()
	defer glance.Stop()
	for ctx.Err() == nil {
		timer := time.NewTimer(time.Until(a.work(ctx)))
		select {
		case <-ctx.Done():
		case <-a.nudged:
		case <-timer.C:
		case <-round.C:
			a.lookAtAll()
		case <-glance.C:
			a.glance()
		}
		timer.Stop()
	}
}

// glance looks for the proxy's listeners, and whether the rules of a former agent can go.
func (a *Agent) glance() {
	if !a.host.ready {
		return
	}
	err := a.look()
	may := err == nil
	if may {
		may, err = a.mayTakeOver()
	}
	if err != nil || may {
		a.lookAtAll()
	}
}

// lookAtAll makes the host and all pods due.
func (a *Agent) lookAtAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hostDueLocked(0)
	for _, e := range a.entries {
		a.dueLocked(e)
	}
}

// work does what is due, and returns when the next thing is.
func (a *Agent) work(ctx context.Context) time.Time {
	for ctx.Err() == nil {
		if a.host.tally.Changed(ctx) {
			a.mu.Lock()
			a.hostDueLocked(calm)
			a.mu.Unlock()
		}
		e, onHost, next := a.take()
		switch {
		case onHost:
			err := a.keepHost(ctx)
			if ctx.Err() == nil {
				a.report(err)
			}
			if a.host.ready {
				a.wakeDoubted()
				a.probeOne()
			}
		case e != nil:
			a.pass(ctx, e)
		default:
			if count := a.host.tally.Next(); !count.IsZero() && count.Before(next) {
				next = count
			}
			return next
		}
	}
	return time.Now()
}

// take takes what is to be done next: a pod that the plugin waits for, the host, or another pod.
// Without any it returns when there will be something.
func (a *Agent) take() (e *entry, onHost bool, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if len(a.urgent) > 0 && a.host.members.areKnown() {
		e, a.urgent = a.urgent[0], a.urgent[1:]
		delete(a.due, e)
		return e, false, now
	}
	if !a.hostDue.IsZero() && !now.Before(a.hostDue) || !a.host.members.areKnown() && a.hostDue.IsZero() && !a.isBareLocked() {
		a.hostDue = time.Time{}
		return nil, true, now
	}
	next = now.Add(a.options.Round)
	if !a.hostDue.IsZero() {
		next = a.hostDue
	}
	for e, at := range a.due {
		if !now.Before(at) {
			delete(a.due, e)
			return e, false, now
		}
		if at.Before(next) {
			next = at
		}
	}
	return nil, false, next
}

// report notes and tells how the host is.
func (a *Agent) report(err error) {
	a.mu.Lock()
	a.proxyState.err = err
	switch {
	case errors.Is(err, ErrSettings), errors.Is(err, errIntruder), errors.Is(err, agent.ErrUncounted): // nothing else is wrong
		a.hostDueLocked(a.options.SettingsRound)
	case err != nil:
		a.hostDueLocked(a.failures.Next(time.Now()))
	default:
		a.failures.Reset()
	}
	a.mu.Unlock()
	if same := err == nil && a.reported == nil || err != nil && a.reported != nil && err.Error() == a.reported.Error(); !same {
		a.options.ObserveHost(err)
	}
	a.reported = err
}

// hostDueLocked has the host looked at after a pause, or before. The caller holds mu.
func (a *Agent) hostDueLocked(pause time.Duration) {
	if at := time.Now().Add(pause); a.hostDue.IsZero() || at.Before(a.hostDue) {
		a.hostDue = at
	}
	a.nudgeLocked()
}

// dueLocked has a pod looked at. The caller holds mu.
func (a *Agent) dueLocked(e *entry) {
	a.due[e] = time.Time{}
	a.nudgeLocked()
}

func (a *Agent) nudgeLocked() {
	select {
	case a.nudged <- struct{}{}:
	default: // it has one already
	}
}

// retireLocked tells those who wait for a withdrawal. The caller holds mu.
func (a *Agent) retireLocked() {
	close(a.retired)
	a.retired = make(chan struct{})
}

// Look has the agent look at a pod again.
func (a *Agent) Look(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wakeLocked(uid)
}

// told returns what the feed has told of a pod, and whether it has told of all.
func (a *Agent) told(uid string) (pod ambient.Pod, told, complete bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod, told = a.roster.Pods[uid]
	return pod, told, a.roster.Complete
}

// isStatus reports whether a text is one that the agent writes as a status.
func (a *Agent) isStatus(text string) bool {
	return text != "" && slices.Contains(a.options.Vocabulary.StatusTexts, text)
}
