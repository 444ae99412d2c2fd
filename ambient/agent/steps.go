// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// take takes one step. The error is errNews if the alert has ended a wait.
func (w *worker) take(ctx context.Context, alert <-chan struct{}, step ambient.Step) error {
	switch step {
	case ambient.StepTell:
		return w.tell(ctx, alert)
	case ambient.StepWithdraw:
		return w.withdraw(ctx, alert)
	case ambient.StepPending, ambient.StepEnabled, ambient.StepClear:
		w.annotate(w.seen.After(step).Status)
		return nil
	case ambient.StepClose:
		return w.close()
	case ambient.StepOpen: // by a search for all pods that wait
		return w.open(ctx)
	case ambient.StepPrepare, ambient.StepEnter, ambient.StepLeave, ambient.StepApply, ambient.StepDrain, ambient.StepRemove:
		return w.bounded(ctx, func() error { return w.change(ctx, step) })
	case ambient.StepAwaitProxy, ambient.StepAwaitDrained, ambient.StepAwaitTurn: // the next look tells
	}
	return nil
}

// change takes a step in the kernel.
func (w *worker) change(ctx context.Context, step ambient.Step) error {
	o := w.agent.options
	return map[ambient.Step]func() error{
		ambient.StepEnter: func() error {
			if err := w.ensureRecord(w.noted.leaving); err != nil { // what the rules capture is as it was
				return err
			}
			return w.edit(func() error { return w.agent.sets.enter(ctx, w.uid, w.addresses) })
		},
		ambient.StepLeave: func() error {
			return w.edit(func() error { return w.agent.sets.leave(ctx, w.uid) })
		},
		ambient.StepPrepare: func() error { return w.apply(ctx, true) },
		ambient.StepApply:   func() error { return w.apply(ctx, false) },
		ambient.StepDrain:   func() error { return w.drain(ctx) },
		ambient.StepRemove: func() error {
			if err := w.takeOverFormer(ctx); err != nil {
				return err
			}
			return o.Dataplane.Remove(ctx, w.namespace, o.Owner)
		},
	}[step]()
}

// drain applies the draining plan. If it is refused for as long as the connections would have, they
// are not waited for: the pod leaves the mesh without.
func (w *worker) drain(ctx context.Context) error {
	err := w.takeOverFormer(ctx)
	if err == nil {
		w.draining = time.Time{}
		err = w.apply(ctx, true)
	}
	if err == nil || ctx.Err() != nil {
		w.undrained = time.Time{}
		return err
	}
	if w.undrained.IsZero() {
		w.undrained = time.Now()
	}
	w.seen.Undrainable = time.Since(w.undrained) >= w.agent.options.DrainTimeout
	return err
}

// edit edits the host's sets. An address that this pod has had and leaves may be another pod's by
// now, which then looks for it.
func (w *worker) edit(do func() error) error {
	before := w.agent.sets.of(w.uid)
	err := do()
	kept := w.agent.sets.of(w.uid)
	w.agent.released(w.uid, slices.DeleteFunc(before, func(a netip.Addr) bool { return slices.Contains(kept, a) }))
	return err
}

// takeHanded takes over what the plugin has told, in that order: the runtime may have ended a
// sandbox before or after it made another one.
func (w *worker) takeHanded(ctx context.Context, alert <-chan struct{}) error {
	for {
		w.mu.Lock()
		all := w.handed
		w.mu.Unlock()
		if len(all) == 0 {
			return nil
		}
		var err error
		if first := all[0]; first.departure != nil {
			err = w.takeDeparture(ctx, first.departure)
		} else {
			err = w.takeEvent(ctx, alert, first.event)
		}
		if err != nil {
			return err
		}
	}
}

// taken drops what was handed first.
func (w *worker) taken() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handed = w.handed[1:]
}

// takeEvent takes over a namespace. One that is replaced is given up: the runtime has replaced the
// pod's network, and the rules ended with it.
func (w *worker) takeEvent(ctx context.Context, alert <-chan struct{}, e *event) error {
	same := w.namespace != nil && w.namespace.ID() == e.namespace.ID()
	recorded := w.isRecorded(e.namespace)
	if !same && !recorded && (w.namespace != nil || w.recorded) {
		if err := errors.Join(w.withdraw(ctx, alert), w.forgetRecord()); err != nil {
			return fmt.Errorf("give up %s, which %s replaces: %w", w.namespace, e.namespace, err)
		}
	}
	w.taken()
	e.former = w.pod.Addresses
	w.enter(e, same)
	if same {
		w.waiting = append(w.waiting, e)
		return e.namespace.Close()
	}
	for _, former := range w.waiting {
		close(former.Replaced)
	}
	if w.waiting, w.event = []*event{e}, e; !recorded {
		w.plan = nil
	}
	err := errors.Join(w.close(), w.use(e.namespace))
	w.fresh = !recorded && err == nil
	return err
}

// enter makes the event's sandbox the pod's.
func (w *worker) enter(e *event, same bool) {
	if w.ended != nil {
		w.event, w.ended = e, nil
	}
	if len(e.pod.Containers) > 0 {
		w.container = e.pod.Containers[0]
	} else if !same {
		w.container = ""
	}
}

// isRecorded reports whether the record is of a namespace that has not been opened since a restart.
func (w *worker) isRecorded(namespace *interception.Netns) bool {
	return w.namespace == nil && w.recorded && !w.damaged && w.recordedIn == namespace.ID()
}

// open finds the pod's namespace.
func (w *worker) open(ctx context.Context) error {
	addresses, err := w.lastAddresses(ctx)
	if err != nil {
		return err
	}
	found, err := w.agent.search.find(ctx, podnetns.Pod{
		Namespace: w.pod.Namespace, Name: w.pod.Name, UID: cmp.Or(roster.RuntimeUID(w.pod.Pod), w.noted.runtime, w.uid),
		HostNetwork: w.pod.HostNetwork, IPs: addresses,
	})
	if err != nil {
		return err
	}
	w.container = found.Attachment.ContainerID
	if err := w.use(found.Netns); err != nil {
		return err
	}
	if w.recorded && !w.damaged && w.recordedIn != found.Netns.ID() { // the rules ended with the namespace of the record
		w.plan = nil
		return w.forgetRecord()
	}
	return nil
}

// use takes over an open namespace. One that is another pod's is refused.
func (w *worker) use(namespace *interception.Netns) error {
	if err := w.agent.watch.Claim(w.uid, namespace); err != nil {
		return errors.Join(err, namespace.Close())
	}
	w.namespace, w.alone, w.moved, w.watched = namespace, len(w.agent.options.TakeOver) == 0, false, false
	w.drifts.unsettle() // what this one holds is the agent's to write
	return nil
}

// watch begins to watch the open namespace for changes, before the worker looks at it. The plugin
// waits for the pod in a fresh one: the worker watches that, and looks at it, after the answer.
func (w *worker) watch() error {
	if w.namespace == nil || w.fresh || w.watched {
		return nil
	}
	err := w.agent.watch.Add(w.uid, w.namespace)
	w.watched = err == nil
	return err
}

// close closes the namespace.
func (w *worker) close() error {
	if w.namespace == nil {
		return nil
	}
	w.agent.watch.Remove(w.uid)
	err := w.namespace.Close()
	w.namespace, w.fresh = nil, false
	return err
}

// apply applies the plan or, if the pod leaves or may not be captured yet, the draining one. Its
// record says so, too: a retiring agent does not keep such a pod.
func (w *worker) apply(ctx context.Context, draining bool) error {
	if err := w.ensureRecord(draining); err != nil {
		return err
	}
	plan := w.plan
	if draining {
		plan = w.plan.Draining()
	}
	w.fresh = false
	err := w.agent.options.Dataplane.Apply(ctx, w.namespace, plan)
	w.moved = w.moved || err == nil
	return errors.Join(err, w.entered())
}

// tell has the proxy serve the pod, and waits for the acknowledgement.
func (w *worker) tell(ctx context.Context, alert <-chan struct{}) error {
	if !w.told {
		err := w.agent.server.Set(zds.Workload{
			UID: w.uid, Name: w.pod.Name, Namespace: w.pod.Namespace, ServiceAccount: w.account(),
		}, w.namespace)
		if err != nil {
			return err
		}
		w.set, w.told = true, true
	}
	var ahead error
	if w.fresh && w.current().Wanted.Held == "" {
		w.enterAhead(ctx)
		ahead = w.applyAhead(ctx)
	}
	err := w.await(ctx, alert)
	if err != nil && ahead != nil && !errors.Is(err, errNews) {
		err = errors.Join(err, fmt.Errorf("apply the rules meanwhile: %w", ahead))
	}
	return err
}

// enterAhead enters a pod that the plugin waits for in the host's sets, while the proxy is at work
// on it and the rules are applied. No probe reaches the pod yet. The step itself follows if that
// fails, and tells why.
func (w *worker) enterAhead(ctx context.Context) {
	if w.seen.InSets || w.bounded(ctx, func() error { return w.ensureRecord(false) }) != nil {
		return
	}
	addresses := w.addresses()
	w.entering = make(chan error, 1)
	go func() {
		w.entering <- w.edit(func() error { return w.agent.sets.enter(ctx, w.uid, func() []netip.Addr { return addresses }) })
	}()
	w.seen = w.seen.After(ambient.StepEnter)
}

// applyAhead applies the rules of a pod that the plugin waits for, while the proxy is at work on
// it. No program of the pod runs yet, so that no connection is captured before the proxy serves it.
// While no proxy is connected, the pod gets no rules. After a failure, the worker tries again once
// the proxy has acknowledged the pod.
func (w *worker) applyAhead(ctx context.Context) error {
	if w.agent.server.Status().Connections == 0 {
		return nil
	}
	err := w.bounded(ctx, func() error { return w.apply(ctx, false) })
	if err == nil {
		w.seen = w.seen.After(ambient.StepApply)
	}
	return err
}

// entered waits until a pod that was entered ahead is in the host's sets.
func (w *worker) entered() error {
	if w.entering == nil {
		return nil
	}
	err := <-w.entering
	w.entering, w.seen.InSets = nil, err == nil
	return err
}

// account returns the pod's service account, which the feed tells, or else the record.
func (w *worker) account() string {
	if w.pod.UID == "" {
		return w.noted.account
	}
	return w.pod.ServiceAccount
}

// withdraw has all proxies forget the pod.
func (w *worker) withdraw(ctx context.Context, alert <-chan struct{}) error {
	if !w.set {
		return nil
	}
	w.told = false // also if news ends the wait
	w.agent.server.Delete(w.uid)
	if err := w.await(ctx, alert); err != nil {
		return err
	}
	w.set = false
	return nil
}

// await waits until the proxy has done what it was told.
func (w *worker) await(ctx context.Context, alert <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, w.agent.options.TellTimeout)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- w.agent.server.Await(ctx, w.uid) }()
	select {
	case err := <-answer:
		return err
	case <-alert:
		cancel()
		if <-answer == nil {
			return nil
		}
		return errNews
	}
}

// forget forgets a pod for which nothing is left to do.
func (w *worker) forget() error {
	return errors.Join(w.forgetRecord(), w.close())
}
