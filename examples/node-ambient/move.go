// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// move takes the pods of the node from the form of capture in which they are to the one that the
// settings ask for, one at a time. The agent of the new form works as it always does. Beside it,
// the agent of the former form keeps the pods that it has, and withdraws each pod that the new
// agent has captured. A pod that the new form cannot capture stays in the former.
//
// A pod is between both forms from its capture in the new one until the former captures no new
// connection of it. The connections that the former agent has captured go on as in any withdrawal,
// while other pods move.
type move struct {
	to, from formAgent
	ended    func() // is called when the former agent has ended
	toPods   bool   // the new form captures the pods in their own namespaces
	fork     *fork
	log      *slog.Logger
	news     chan struct{} // has a value if there is something to decide

	mu       sync.Mutex
	left     map[string]*leaving // the pods that the former agent has, by UID
	expected map[string]int      // new sandboxes of other pods, by namespace and name
	queue    []string            // those that could be captured by the new one
	next     orders              // what is to be done since the last decision
	turn     string              // the one that may be; empty if none
	over     bool                // the former agent has ended
}

func newMove(from *former, fork *fork, log *slog.Logger) *move {
	m := &move{
		toPods: from.mode == ambientconf.ModeNode, fork: fork, log: log, news: make(chan struct{}, 1),
		left: map[string]*leaving{}, expected: map[string]int{},
	}
	for _, uid := range from.pods {
		m.left[uid] = &leaving{free: slices.Contains(from.both, uid), passed: slices.Contains(from.left, uid), passedAt: time.Now()}
	}
	signal(m.news)
	return m
}

// held returns how far the new agent may go with a pod before it captures it. One that is on its
// way already, or has lost the former capture, does not wait.
func (m *move) held(uid string) ambient.Step {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch p := m.left[uid]; {
	case p == nil || p.free || p.captured || p.passed:
		return ""
	case m.turn != uid:
		return ambient.StepAwaitTurn
	case m.toPods && !p.shared:
		return ambient.StepPrepare
	}
	return ""
}

// inFormer reports whether the proxy in a pod takes its new connections, where the pods move to the
// node's form.
func (m *move) inFormer(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.left[uid]
	if p == nil {
		return false
	}
	p.told = p.told || p.passed
	return !p.passed
}

// inNew reports whether the proxy in a pod takes its new connections, or is about to, where the
// pods move to the form in the pods.
func (m *move) inNew(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.left[uid]
	if p == nil || !p.free && !p.captured && (m.turn != uid || !p.prepared) {
		return false
	}
	p.told = true
	return true
}

// keeps reports whether the former form alone captures a pod.
func (m *move) keeps(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.left[uid]
	return p != nil && !p.captured && !p.passed
}

// failure returns why the former agent cannot give up a pod; nil if it can.
func (m *move) failure(uid string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.left[uid]; p != nil {
		return p.failure
	}
	return nil
}

// has reports whether the former agent has a pod.
func (m *move) has(uid string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left[uid] != nil
}

// isOver reports whether the former agent has ended.
func (m *move) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// expect lets a pod with a new sandbox be captured out of turn. The UID of a static pod's object
// differs from the one that the runtime tells, and some runtimes tell none. So until done, each pod
// of that name is freed when the new agent tells of it. That may be an ending pod, too, which a pod
// of a StatefulSet replaces.
func (m *move) expect(pod podnetns.Pod) (done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.left[pod.UID]; p != nil {
		m.freeLocked(pod.UID, p)
		return func() {}
	}
	name := pod.String()
	m.expected[name]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.expected[name]--; m.expected[name] == 0 {
			delete(m.expected, name)
		}
	}
}

// freeLocked lets a pod be captured out of turn. The caller holds mu.
func (m *move) freeLocked(uid string, p *leaving) {
	if p.free {
		return
	}
	p.free, m.next.new = true, append(m.next.new, uid)
	if m.toPods {
		m.next.former = append(m.next.former, uid)
	}
	signal(m.news)
}

// see is told how far the new agent is with a pod.
func (m *move) see(pod agent.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.left[pod.UID]
	if p == nil {
		return
	}
	if m.expected[pod.Namespace+"/"+pod.Name] > 0 {
		m.freeLocked(pod.UID, p)
	}
	switch {
	case pod.Step == ambient.StepAwaitTurn:
		m.awaitTurnLocked(pod, p)
	case isCaptured(pod):
		p.captured = true
	case m.turn == pod.UID && !p.captured && p.hasFailed(pod):
		m.giveUpTurnLocked(pod.UID, p)
	}
	p.step = pod.Step
	if isFine(pod) && !m.toPods && (p.told || !pod.Wanted.Enrolled) { // a pod that the node lets go is not shared, either
		p.shared = true
	}
	signal(m.news)
}

// awaitTurnLocked has a pod wait for its turn or, if it is that pod's, for its tunnels: the former
// agent leaves those alone once the proxy in the pod can serve them. The caller holds mu.
func (m *move) awaitTurnLocked(pod agent.Pod, p *leaving) {
	hasRules := pod.Seen.Rules == ambient.DrainingRules || pod.Seen.Rules == ambient.PlannedRules
	switch {
	case m.turn != pod.UID && !slices.Contains(m.queue, pod.UID):
		m.queue = append(m.queue, pod.UID)
	case m.turn == pod.UID && m.toPods && hasRules && !p.prepared:
		p.prepared, m.next.former = true, append(m.next.former, pod.UID)
	}
}

// giveUpTurnLocked lets a pod stay in the former form, so that others go on. The caller holds mu.
func (m *move) giveUpTurnLocked(uid string, p *leaving) {
	m.turn = ""
	if m.toPods {
		p.forgetTurn()
	}
	m.next.former = append(m.next.former, uid)
}

// heldInFormer returns what the former agent waits for with a pod that leaves the form in the pods:
// until the node captures new tunnels to the pod, the proxy in the pod must not forget it.
func (m *move) heldInFormer(uid string) ambient.Step {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.left[uid]
	if p != nil && !m.toPods && !p.shared && (!p.passed || time.Since(p.passedAt) < unsharePatience) {
		return ambient.StepAwaitDrained
	}
	return ""
}

// unsharePatience is how long the former agent waits for the new one. That has to edit one set.
const unsharePatience = 5 * time.Second

// seeFormer is told how far the former agent is with a pod.
func (m *move) seeFormer(pod agent.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.left[pod.UID]
	if p == nil {
		return
	}
	m.noteFailure(p, pod)
	m.warnOfTunnels(p, pod)
	switch {
	case pod.Wanted.Enrolled:
		if !p.shared && p.told && isFine(pod) {
			p.shared, m.next.new = true, append(m.next.new, pod.UID)
		}
	case pod.Step == "" && pod.Err == nil:
		delete(m.left, pod.UID)
		m.next.new = append(m.next.new, pod.UID)
	case !m.toPods && !p.passed && (pod.Seen.Rules == ambient.DrainingRules || pod.Seen.Rules == ambient.NoRules):
		p.passed, p.passedAt, m.next.new = true, time.Now(), append(m.next.new, pod.UID)
	}
	signal(m.news)
}

// warnOfTunnels warns of a proxy that forgets its pod before the node captures the pod's tunnels.
// The caller holds mu.
func (m *move) warnOfTunnels(p *leaving, pod agent.Pod) {
	if pod.Step == ambient.StepWithdraw && p.captured && !p.shared && !m.toPods && !pod.Wanted.Enrolled && !pod.Wanted.Gone {
		m.log.Warn("new tunnels to a pod may still go to its own proxy, which forgets it", "uid", pod.UID)
	}
}

// noteFailure notes why the former agent cannot give up a pod. Other pods need not wait for it: it
// is captured in the new form, too, or is not to be captured. The caller holds mu.
func (m *move) noteFailure(p *leaving, pod agent.Pod) {
	failure := stuck(pod)
	if m.toPods && m.turn == pod.UID && pod.Wanted.Enrolled && !isFine(pod) { // it cannot leave the pod's tunnels alone
		failure = pod.Err
	}
	if failure != nil && (p.failure == nil || p.failure.Error() != failure.Error()) {
		m.log.Warn("a pod cannot leave the former form of capture, and others move on", "uid", pod.UID, "step", pod.Step, "error", failure)
	}
	p.failure = failure
}

// gone notes that the former agent does not have a pod any more.
func (m *move) gone(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.left, uid)
	m.next.new = append(m.next.new, uid)
	signal(m.news)
}

// orders are the pods that the agents have to do something with.
type orders struct {
	withdraw    []string // the former agent
	new, former []string // to look at, by the agents of these forms
}

// decide returns what is to be done, and whether no pod is left in the former form.
func (m *move) decide() (next orders, done bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	busy := false
	for uid, p := range m.left {
		if p.captured && !p.withdrawn {
			p.withdrawn = true
			m.next.withdraw = append(m.next.withdraw, uid)
		}
		busy = busy || !p.passed && p.failure == nil && (p.captured || uid == m.turn)
	}
	if !busy {
		m.turn = ""
		m.queue = slices.DeleteFunc(m.queue, func(uid string) bool { return !m.left[uid].waits() })
		if len(m.queue) > 0 {
			m.turn, m.queue = m.queue[0], m.queue[1:]
			if m.toPods { // it may have had a turn already
				m.left[m.turn].forgetTurn()
			}
			m.next.new = append(m.next.new, m.turn)
		}
	}
	next, m.next = m.next, orders{}
	return next, len(m.left) == 0
}

// run runs both agents until the context ends or one of them fails. The former one ends when it has
// no pod any more.
func (m *move) run(ctx context.Context) error {
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group sync.WaitGroup
	group.Go(func() { end(m.fork.run(working)) })
	group.Go(func() { end(m.to.run(working)) })
	group.Go(func() {
		if err := m.retire(working); err != nil {
			end(err)
		}
	})
	group.Wait()
	return context.Cause(working)
}

// retire runs the former agent until it has no pod any more.
func (m *move) retire(ctx context.Context) error {
	retiring, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- m.from.run(retiring)
	}()
	err := m.moveAll(retiring)
	if err == nil {
		err = m.from.operators.Withdraw(retiring, func(agent.Pod) {}) // with what it has on the host
	}
	if err == nil {
		m.end()
	}
	stop()
	failed := <-ended
	switch {
	case err != nil && ctx.Err() == nil:
		return errors.Join(failed, err)
	case err != nil:
		return nil //nolint:nilerr // the process ends
	}
	close(m.fork.branches[1].closed)
	m.ended()
	m.log.Info("all pods of the node are captured in the new form, and nothing of the former is left")
	return nil
}

// end notes that the former agent ends.
func (m *move) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
}

// moveAll moves one pod after the other, until none is left.
func (m *move) moveAll(ctx context.Context) error {
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group sync.WaitGroup
	defer group.Wait()
	for {
		next, done := m.decide()
		if done {
			return nil
		}
		for _, uid := range next.withdraw {
			group.Go(func() {
				if err := m.withdraw(working, uid); err != nil {
					end(err)
				}
			})
		}
		for _, uid := range next.former {
			m.from.operators.Look(uid)
		}
		for _, uid := range next.new {
			m.to.operators.Look(uid)
		}
		select {
		case <-m.news:
		case <-working.Done():
			return context.Cause(working)
		}
	}
}

// withdraw has the former agent withdraw a pod that the new one has captured.
func (m *move) withdraw(ctx context.Context, uid string) error {
	m.log.Info("a pod is captured in the new form, and leaves the former", "uid", uid)
	err := m.from.operators.Withdraw(ctx, func(agent.Pod) {}, uid)
	if err != nil && !errors.Is(err, agent.ErrUnknownPod) {
		return err
	}
	m.gone(uid)
	return nil
}

// signal puts a value into a channel that has room for one.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default: // it has one already
	}
}
