// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
)

// know takes over what the feed tells of the pod.
func (w *worker) know(pod ambient.Pod) {
	if status := ambient.Status(pod.Annotations[w.agent.options.Vocabulary.Status]); w.annotation.Tell(status) {
		w.seen.Status = status
	}
	w.pod = pod
}

// annotate hands the pod's status over to be written. A new pod that the plugin waits for does not
// run yet, and is not called pending just because its rules are there already.
func (w *worker) annotate(status ambient.Status) {
	told := ambient.Status(w.pod.Annotations[w.agent.options.Vocabulary.Status])
	if status == ambient.StatusPending && len(w.waiting) > 0 && told == ambient.NoStatus && !w.current().Wanted.Closed {
		return
	}
	pod := w.pod.Pod
	w.annotation.Want(status, len(w.waiting) > 0, func(status ambient.Status) { w.agent.options.Annotator.Annotate(pod, status) })
}

// name notes the pod's names, before the feed tells of the pod.
func (w *worker) name(namespace, name string) {
	w.pod.Namespace, w.pod.Name = namespace, name
	w.state.Namespace, w.state.Name = namespace, name
}

// addresses returns the pod's addresses. The plugin knows them before the API server does, which
// may go on to tell those of a former sandbox. While the feed has not told of a pod, the record and
// the host's sets know those that it had.
func (w *worker) addresses() []netip.Addr {
	switch {
	case w.event != nil && (len(w.pod.Addresses) == 0 || w.event.isNewerThan(w.pod.Addresses)):
		return w.event.pod.IPs
	case w.pod.UID == "":
		return w.agent.sets.ownOf(w.uid, w.noted.addresses)
	}
	return w.pod.Addresses
}

// isNewerThan reports whether addresses are those that the feed told before the event, and none of
// the event's.
func (e *event) isNewerThan(addresses []netip.Addr) bool {
	return slices.Equal(addresses, e.former) && !shareAddress(addresses, e.pod.IPs)
}

// lastAddresses returns the addresses by which the pod's namespace is found. After a restart of the
// kubelet the API server may know none of a running pod for a while. A pod that was enrolled then
// has those in the host's sets.
func (w *worker) lastAddresses(ctx context.Context) ([]netip.Addr, error) {
	if known := w.addresses(); len(known) > 0 || !w.recorded {
		return known, nil
	}
	if w.agent.options.Host == nil {
		return w.noted.addresses, nil
	}
	if err := w.bounded(ctx, func() error { return w.agent.sets.learn(ctx) }); err != nil {
		return nil, err
	}
	return w.agent.sets.of(w.uid), nil
}

// look observes the pod in the kernel, at the proxy and in the host's sets.
func (w *worker) look(ctx context.Context, wanted ambient.Wanted) (err error) {
	w.seen.Open = w.namespace != nil
	if wanted.Enrolled {
		w.seen.Undrainable, w.undrained, w.draining = false, time.Time{}, time.Time{}
	}
	if err := w.bounded(ctx, func() error { return w.lookAtRules(ctx, wanted) }); err != nil {
		return err
	}
	if w.seen.Proxy, err = w.lookAtProxy(wanted); err != nil {
		return err
	}
	w.seen.InSets = w.agent.sets.holdsAny(w.uid)
	if wanted.Enrolled {
		w.seen.InSets = w.agent.sets.holds(w.uid, w.addresses())
	}
	return nil
}

// bounded does something when not too many others do. A pod that the plugin waits for does not wait
// for those that run: a restart of the proxy, for example, has all of these looked at.
func (w *worker) bounded(ctx context.Context, do func() error) error {
	if w.slots() == w.agent.slots {
		w.agent.rush.yield(ctx, w.came)
	}
	for {
		slots := w.slots()
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			return do()
		case <-w.came: // the plugin may wait since
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// slots returns those of the agent's that are for this pod.
func (w *worker) slots() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting)+len(w.handed) > 0 {
		return w.agent.urgent
	}
	return w.agent.slots
}

// lookAtRules compares the namespace with the plan.
func (w *worker) lookAtRules(ctx context.Context, wanted ambient.Wanted) (err error) {
	w.seen.Rules = ambient.NoRules
	if w.namespace == nil {
		if w.recorded || w.former {
			w.seen.Rules = ambient.OtherRules
		}
		return nil
	}
	if w.former, err = w.hasFormer(ctx, wanted); w.former || err != nil {
		w.seen.Rules = ambient.OtherRules
		return err
	}
	if planned, err := w.hasPlan(wanted); !planned || err != nil {
		return err
	}
	w.seen.Rules, err = w.observe(ctx, wanted)
	if err == nil && w.seen.Rules == ambient.DrainingRules && !wanted.Enrolled {
		return w.lookWhetherDrained()
	}
	return err
}

// hasPlan reports whether there is a plan with which to compare the open namespace. A pod without a
// plan never had one, unless its record is damaged: then all rules it has are other rules. The plan
// of a new pod is made while the proxy is at work on it; here hasPlan only finds out whether it can
// be made.
func (w *worker) hasPlan(wanted ambient.Wanted) (has bool, err error) {
	switch {
	case wanted.Enrolled && w.plan == nil && w.fresh:
		_, err := w.planFor(interception.Facts{IPv6: true, LoopbackIPv6: true})
		return false, err
	case wanted.Enrolled && (w.plan == nil || w.damaged):
		err := w.makePlan()
		return err == nil, err
	case w.damaged:
		w.plan = &interception.Plan{Owner: w.agent.options.Owner}
	}
	return w.plan != nil, nil
}

// observe compares the open namespace with the plan.
func (w *worker) observe(ctx context.Context, wanted ambient.Wanted) (ambient.Rules, error) {
	if w.fresh {
		return ambient.NoRules, nil
	}
	o := w.agent.options
	state, err := o.Dataplane.Observe(ctx, w.namespace, o.Owner)
	if err != nil {
		return ambient.OtherRules, fmt.Errorf("observe the rules: %w", err)
	}
	planned, draining := !differs(w.plan, state), !differs(w.plan.Draining(), state)
	switch {
	case planned && (wanted.Enrolled || !draining): // a plan that captures nothing is its draining plan
		return ambient.PlannedRules, nil
	case draining:
		return ambient.DrainingRules, nil
	case differs(nil, state):
		return ambient.OtherRules, nil
	}
	return ambient.NoRules, nil
}

// differs reports whether the owner has something else than the plan. What other programs have is
// not the agent's to change.
func differs(plan *interception.Plan, state interception.State) bool {
	return slices.ContainsFunc(interception.Diff(plan, state), func(d interception.Drift) bool { return d.Kind != interception.DriftForeign })
}

// makePlan makes the plan for the open namespace.
func (w *worker) makePlan() error {
	facts, err := netfacts.Read(w.namespace)
	if err != nil {
		return fmt.Errorf("make the plan: %w", err)
	}
	w.plan, err = w.planFor(facts)
	return err
}

// planFor returns the plan for a namespace of which these facts hold.
func (w *worker) planFor(facts interception.Facts) (*interception.Plan, error) {
	o := w.agent.options
	overrides, warnings, err := o.Vocabulary.Parse(w.pod.Pod, o.Defaults)
	if err != nil {
		return nil, fmt.Errorf("make the plan: %w", err)
	}
	w.warnings = warnings
	sparing := w.event == nil && !o.CaptureExisting // programs run there already
	plan, err := w.agent.plans.of(settings{overrides, facts, sparing}, func() (*interception.Plan, error) {
		plan, err := ambient.PodPlan(overrides, o.Numbers, facts, o.Owner)
		if err == nil && sparing {
			plan = plan.Sparing()
		}
		return plan, err
	})
	if err != nil {
		return nil, fmt.Errorf("make the plan: %w", err)
	}
	return plan, nil
}

// lookWhetherDrained looks for connections of the proxy in a namespace with the draining plan.
func (w *worker) lookWhetherDrained() error {
	if w.draining.IsZero() {
		w.draining = time.Now()
	}
	if w.seen.Drained = time.Since(w.draining) >= w.agent.options.DrainTimeout; w.seen.Drained {
		return nil
	}
	connected, err := proxyIsConnected(w.namespace, w.agent.options.Numbers)
	w.seen.Drained = err == nil && !connected
	return err
}

// lookAtProxy asks the server and the kernel how far the proxy is with the pod.
func (w *worker) lookAtProxy(wanted ambient.Wanted) (ambient.Proxy, error) {
	switch {
	case !w.set:
		return ambient.ProxyUntold, nil
	case !wanted.Enrolled: // a proxy may have it, and has to be told
		return ambient.ProxyTold, nil
	case !w.told || w.agent.server.Await(ended(), w.uid) != nil:
		w.missing = time.Time{}
		return ambient.ProxyUntold, nil
	}
	listens, err := proxyListens(w.namespace, w.agent.options.Numbers)
	if err != nil {
		return ambient.ProxyTold, err
	}
	return w.judge(listens), nil
}

// judge says how far a proxy is that has acknowledged the pod. If it loses its listeners again and
// again, it has longer each time.
func (w *worker) judge(listens bool) ambient.Proxy {
	now := time.Now()
	switch {
	case listens:
		w.missing = time.Time{}
		return ambient.ProxyServes
	case w.missing.IsZero():
		w.missing, w.patience = now, w.losses.Next(now)
	case now.Sub(w.missing) >= w.patience:
		w.missing = time.Time{}
		return ambient.ProxyLost
	}
	return ambient.ProxyTold
}

// ended returns a context with which a call that could wait answers at once.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
