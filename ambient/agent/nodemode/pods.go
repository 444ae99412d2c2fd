// SPDX-License-Identifier: Apache-2.0

package nodemode

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/upkeep"
)

// ErrAddress is wrapped by the error about a pod that cannot be captured by its addresses.
var ErrAddress = errors.New("the pod cannot be told from others by its addresses")

// ErrFamily is wrapped by the error about a pod with addresses of a family that the node's proxy
// does not serve. Once the pod is captured, its connections of that family are refused. If the
// proxy serves the other family, the pod is enabled nevertheless, and has this error without a
// step.
var ErrFamily = errors.New("the node's proxy does not serve a family of the pod")

// errHost means that the host's sets are not there yet.
var errHost = errors.New("the rules of the node are not in place: the agent reports why")

// entry is what the agent has to do with a pod. Apart from handed, which the agent's mu guards with
// state, the agent's loop alone uses it.
type entry struct {
	uid    string
	handed []handed // is not taken yet, oldest first
	state  agent.Pod

	pod        ambient.Pod
	annotation roster.Annotation
	sandbox    *event   // the last one that the plugin has handed over and that has not ended
	waiting    []*event // until the pod is as wanted
	ended      *ended   // the last sandbox, unless another one is known
	seen       ambient.Seen
	warnings   []interception.Warning
	began      time.Time // when the agent could begin to enrol the pod
	counted    bool
	doubts     map[interception.Family]doubt // of families whose connections get no mark, it seems
	failures   upkeep.Series
}

// ended is a sandbox that has ended.
type ended struct {
	addresses []netip.Addr
	at        time.Time
}

func newEntry(uid string) *entry {
	return &entry{
		uid: uid, state: agent.Pod{UID: uid, Since: time.Now()},
		doubts: map[interception.Family]doubt{}, failures: roster.Retries(),
	}
}

// know takes over what the feed tells of the pod.
func (e *entry) know(pod ambient.Pod, annotation string) {
	if status := ambient.Status(pod.Annotations[annotation]); e.annotation.Tell(status) {
		e.seen.Status = status
	}
	e.pod = pod
}

// annotate hands a pod's status over to be written.
func (a *Agent) annotate(e *entry, status ambient.Status) {
	pod := e.pod.Pod
	e.annotation.Want(status, len(e.waiting) > 0, func(status ambient.Status) { a.options.Annotator.Annotate(pod, status) })
}

// addresses returns the pod's. The plugin knows them before the API server does, which may go on to
// tell those of a former sandbox, or none.
func (e *entry) addresses() []netip.Addr {
	if e.sandbox != nil && (len(e.pod.Addresses) == 0 || slices.Equal(e.pod.Addresses, e.sandbox.former)) {
		return e.sandbox.pod.IPs
	}
	return e.pod.Addresses
}

// awaitsSandbox reports whether the pod's sandbox has ended, and no other one is known to have
// begun: by the plugin, by an address that the former one did not have, or because the API server
// goes on to tell of the address for a round.
func (e *entry) awaitsSandbox(round time.Duration) bool {
	if e.ended == nil {
		return false
	}
	isNew := slices.ContainsFunc(e.pod.Addresses, func(a netip.Addr) bool { return !slices.Contains(e.ended.addresses, a) })
	if isNew || time.Since(e.ended.at) >= round {
		e.ended = nil
	}
	return e.ended != nil
}

// pass looks at a pod once, and takes the steps that follow until one fails or waits.
func (a *Agent) pass(ctx context.Context, e *entry) {
	a.mu.Lock()
	wanted, pod, known := a.wantedLocked(e.uid)
	a.mu.Unlock()
	if known && pod.UID != "" {
		e.know(pod, a.options.Vocabulary.Status)
		e.warnings = a.warnings(wanted, pod)
	}
	if err := a.takeHanded(ctx, e); err != nil {
		a.failed(ctx, e, wanted, ambient.StepLeave, err)
		return
	}
	if e.awaitsSandbox(a.options.Round) && wanted.Enrolled {
		a.later(e, a.options.Round)
		return
	}
	if !known || wanted.Enrolled && len(e.addresses()) == 0 {
		return // the plugin or the feed will tell
	}
	if e.began.IsZero() {
		e.began = time.Now()
	}
	if !a.host.members.areKnown() && !a.isBare() {
		a.failed(ctx, e, wanted, "", errHost)
		return
	}
	a.proceed(ctx, e, wanted)
}

// proceed goes on with a pass once the pod and the members of the host's sets are known.
func (a *Agent) proceed(ctx context.Context, e *entry, wanted ambient.Wanted) {
	if wanted.Enrolled { // a pod that leaves stays in the sets of shared pods until it has left
		if err := a.share(ctx, e, e.addresses()); err != nil {
			a.failed(ctx, e, wanted, ambient.StepEnter, err)
			return
		}
	}
	a.observe(e, wanted)
	a.advance(ctx, e, wanted)
}

// warnings returns the warnings about a pod that is to be captured.
func (a *Agent) warnings(wanted ambient.Wanted, pod ambient.Pod) []interception.Warning {
	if !wanted.Enrolled {
		return nil
	}
	return a.options.Vocabulary.WarningsOnNode(pod.Pod, ambient.DefaultOverrides(a.options.DNS))
}

// observe notes what is seen of a pod. What captures it are its members, so that Rules follows from
// them. There is no namespace to open and no proxy to be told.
func (a *Agent) observe(e *entry, wanted ambient.Wanted) {
	status, members := e.seen.Status, a.host.members.of(e.uid)
	e.seen = ambient.Seen{Status: status, InSets: len(members) > 0}
	if !wanted.Enrolled {
		return
	}
	own := a.host.members.kept(e.addresses())
	e.seen.Open, e.seen.Proxy = true, ambient.ProxyTold
	if a.host.ready && a.host.listens && (len(own) == 0 || len(a.host.unserved(own)) < len(own)) {
		e.seen.Proxy = ambient.ProxyServes
	}
	isOwn := amongst(own)
	others := slices.ContainsFunc(members, func(m netip.Addr) bool { return !isOwn[m] })
	e.seen.InSets = len(own) > 0 && len(members) == len(own) && !others
	switch {
	case e.seen.InSets:
		e.seen.Rules = ambient.PlannedRules
	case len(members) > 0:
		e.seen.Rules = ambient.OtherRules
	}
}

// amongst returns addresses as a set: a pod may have thousands.
func amongst(all []netip.Addr) map[netip.Addr]bool {
	set := make(map[netip.Addr]bool, len(all))
	for _, address := range all {
		set[address] = true
	}
	return set
}

// unserved returns the addresses among these with a family that the proxy does not serve.
func (h *host) unserved(own []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(own), func(a netip.Addr) bool { return slices.Contains(h.serves, interception.FamilyOf(a)) })
}

// lack returns an error if the proxy has its listeners, and does not serve a family of the pod.
func (a *Agent) lack(e *entry, wanted ambient.Wanted) error {
	h := &a.host
	if !wanted.Enrolled || !h.ready || !h.listens {
		return nil
	}
	if unserved := h.unserved(h.members.kept(e.addresses())); len(unserved) > 0 {
		p := h.first() // which listens
		return fmt.Errorf("%w: the pod has the address %s, and the proxy %s/%s, with %v, listens for %v alone: connections of that family go "+
			"nowhere: give the proxy's pod an address of each family of the pods, and have it listen for each",
			ErrFamily, unserved[0], p.Namespace, p.Name, p.Proxy.Addresses, h.serves)
	}
	return nil
}

// advance takes the steps that follow from what was seen.
func (a *Agent) advance(ctx context.Context, e *entry, wanted ambient.Wanted) {
	var last ambient.Step
	for _, last = range ambient.Next(wanted, e.seen) {
		if last.Waits() {
			a.publish(e, wanted, last, a.lack(e, wanted))
			return // the proxy's listeners make all pods due
		}
		if err := a.step(ctx, e, last); err != nil {
			a.failed(ctx, e, wanted, last, err)
			return
		}
		e.seen = e.seen.After(last)
	}
	if step, err := a.finish(ctx, e, wanted, last); err != nil {
		a.failed(ctx, e, wanted, step, err)
		return
	}
	e.failures.Reset()
	a.countSettled(e, wanted)
	a.publish(e, wanted, "", a.lack(e, wanted))
	e.answer()
	if !wanted.Enrolled {
		a.retire(e)
	}
}

// finish does what is left after the steps of a pod. If it fails, it returns the step that the
// failure belongs to.
func (a *Agent) finish(ctx context.Context, e *entry, wanted ambient.Wanted, last ambient.Step) (ambient.Step, error) {
	switch {
	case !wanted.Enrolled:
		return ambient.StepLeave, a.share(ctx, e, nil)
	case last != ambient.StepEnabled:
		return ambient.StepEnabled, a.mustBeMarked(ctx, e)
	}
	return "", nil
}

// mustBeMarked returns an error for a pod whose connections get no mark. If the pod is still
// captured in its own namespace, it goes back to that alone: a turn that has failed is over. A pod
// that the plugin waits for may have nothing there yet.
func (a *Agent) mustBeMarked(ctx context.Context, e *entry) error {
	err := a.probe(e)
	if errors.Is(err, ErrMark) && len(e.waiting) == 0 && a.isInPod(e.uid) {
		err = errors.Join(err, a.removeMembers(ctx, e, a.host.members.of(e.uid)))
		e.seen.InSets, e.seen.Rules = false, ambient.NoRules
	}
	return err
}

// answer tells the plugin that the pod is as wanted.
func (e *entry) answer() {
	for _, w := range e.waiting {
		close(w.Settled)
	}
	e.waiting = nil
}

// step takes one step. The members are the rules: after them nothing is left to apply.
func (a *Agent) step(ctx context.Context, e *entry, step ambient.Step) error {
	switch step { //nolint:exhaustive // the others are about the pod's namespace
	case ambient.StepEnter:
		return a.enter(ctx, e)
	case ambient.StepLeave:
		return a.leave(ctx, e)
	case ambient.StepEnabled:
		if err := a.mustBeMarked(ctx, e); err != nil {
			return err
		}
		a.annotate(e, ambient.StatusEnabled)
	case ambient.StepPending, ambient.StepClear:
		a.annotate(e, e.seen.After(step).Status)
	}
	return nil
}

// enter adds the pod's addresses to the sets, and removes those that it had before.
func (a *Agent) enter(ctx context.Context, e *entry) error {
	own := e.addresses()
	if err := a.check(e, own); err != nil {
		return err
	}
	isOwn := amongst(own)
	others := slices.DeleteFunc(a.host.members.of(e.uid), func(m netip.Addr) bool { return isOwn[m] })
	former := map[string]bool{}
	for _, address := range own {
		if uid := a.host.members.ownerOf(address); uid != e.uid {
			former[uid] = true
		}
	}
	err := a.host.edit(ctx, slices.Concat(own, others), func(edit *interception.SetEdit, address netip.Addr) {
		if isOwn[address] {
			edit.Add[address] = e.uid
		} else {
			edit.Remove[address] = e.uid
		}
	})
	a.released(former, len(others) > 0)
	return err
}

// leave removes the pod's members.
func (a *Agent) leave(ctx context.Context, e *entry) error {
	members := a.host.members.of(e.uid)
	err := a.removeMembers(ctx, e, members)
	a.released(nil, len(members) > 0)
	return err
}

func (a *Agent) removeMembers(ctx context.Context, e *entry, members []netip.Addr) error {
	clear(e.doubts)
	return a.host.edit(ctx, members, func(edit *interception.SetEdit, address netip.Addr) { edit.Remove[address] = e.uid })
}

// released has pods looked at that have lost a member to another one and, if addresses have become
// free, all those that wait for something.
func (a *Agent) released(former map[string]bool, free bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid := range former {
		a.wakeLocked(uid)
	}
	for e := range a.due {
		if free {
			a.dueLocked(e)
		}
	}
}

// check returns an error for addresses by which other programs than the pod's would be captured.
func (a *Agent) check(e *entry, addresses []netip.Addr) error {
	h := &a.host
	if len(h.members.kept(addresses)) == 0 {
		return fmt.Errorf("%w: the node has none of the families of %v", ErrAddress, addresses)
	}
	for _, address := range addresses {
		if h.own[address] {
			return fmt.Errorf("%w: %s is an address of the node", ErrAddress, address)
		}
		if other := a.otherPod(e, address); other != "" {
			return fmt.Errorf("%w: %s is also an address of %s", ErrAddress, address, other)
		}
	}
	return nil
}

// otherPod names the pod whose address a pod has: the proxy, or the owner of a member that goes
// on to have it. What the plugin has given to a pod is that pod's, and of two the later one's: the
// feed will tell that the other one is gone.
func (a *Agent) otherPod(e *entry, address netip.Addr) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	has := func(uid string) bool {
		return uid != e.uid && !a.roster.Pods[uid].Finished() && slices.Contains(a.roster.Pods[uid].Addresses, address)
	}
	for uid, pod := range a.roster.Pods {
		if a.options.Policy.IsProxy(pod) && !pod.HostNetwork && has(uid) {
			return fmt.Sprintf("the proxy %s/%s", pod.Namespace, pod.Name)
		}
	}
	owner := a.host.members.ownerOf(address)
	other := a.entries[owner]
	switch own, given := e.given(address), other.given(address); {
	case other == nil || other == e || own.After(given):
		return ""
	case !given.IsZero():
		return fmt.Sprintf("pod %s/%s", other.sandbox.pod.Namespace, other.sandbox.pod.Name)
	case has(owner):
		return fmt.Sprintf("pod %s/%s", a.roster.Pods[owner].Namespace, a.roster.Pods[owner].Name)
	}
	return ""
}

// given returns when the plugin gave a pod an address that it has now; zero if it did not. There
// may be no entry.
func (e *entry) given(address netip.Addr) (at time.Time) {
	if e != nil && e.sandbox != nil && slices.Contains(e.sandbox.pod.IPs, address) && slices.Contains(e.addresses(), address) {
		at = e.sandbox.begun
	}
	return at
}

// failed notes a failure, and has the pod looked at again later. It takes the status "enabled" back
// from a pod that lacks something and does not get it. A pod whose connections are not marked is
// pending, and the plugin does not wait for the mark, which another program takes away.
func (a *Agent) failed(ctx context.Context, e *entry, wanted ambient.Wanted, step ambient.Step, err error) {
	if ctx.Err() != nil {
		return // the end of the agent is no failure
	}
	isUnmarked := errors.Is(err, ErrMark)
	if isUnmarked {
		e.answer()
	}
	isLost := step == ambient.StepEnter && e.seen.Status == ambient.StatusEnabled || isUnmarked && e.seen.Status != ambient.StatusPending
	if wanted.Enrolled && isLost && !a.isInPod(e.uid) {
		e.seen.Status = ambient.StatusPending
		a.annotate(e, e.seen.Status)
	}
	a.publish(e, wanted, step, err)
	pause := e.failures.Next(time.Now())
	if !a.host.members.areKnown() && !errors.Is(err, errHost) { // an edit has failed, and the next look may be due much later
		a.mu.Lock()
		a.hostDueLocked(pause)
		a.mu.Unlock()
	}
	a.later(e, pause)
}

// later has a pod looked at after a pause.
func (a *Agent) later(e *entry, pause time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, is := a.due[e]; !is {
		a.due[e] = time.Now().Add(pause)
	}
}

// retire forgets a pod for which nothing is left to do, unless there is news.
func (a *Agent) retire(e *entry) {
	a.mu.Lock()
	_, again := a.due[e]
	gone := !again && len(e.handed) == 0
	if gone {
		delete(a.entries, e.uid)
		delete(a.kept, e.uid)
		if a.roster.Withdrawn.All {
			a.hostDueLocked(0)
		}
		a.retireLocked()
	}
	a.mu.Unlock()
	if gone {
		e.annotation.Stop()
		a.options.Observe(e.state)
	}
}

// publish notes and tells how far a pod is.
func (a *Agent) publish(e *entry, wanted ambient.Wanted, step ambient.Step, err error) {
	a.mu.Lock()
	if step != e.state.Step || (err == nil) != (e.state.Err == nil) {
		e.state.Since = time.Now()
	}
	e.state.Wanted, e.state.Seen, e.state.Step, e.state.Err = wanted, e.seen, step, err
	e.state.Namespace, e.state.Name, e.state.Warnings = e.pod.Namespace, e.pod.Name, e.warnings
	now := e.state
	a.mu.Unlock()
	a.options.Observe(now)
}

// countSettled counts the enrolment of a pod that runs, once.
func (a *Agent) countSettled(e *entry, wanted ambient.Wanted) {
	if !wanted.Enrolled || e.counted {
		return
	}
	if e.counted = true; e.sandbox == nil {
		a.options.Count(agent.Count{What: agent.CountEnrolled, Of: "feed", Times: 1, Duration: time.Since(e.began)})
	}
}
