// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/meshcni/meshcni/internal/nodepods"
	"github.com/meshcni/meshcni/repair"
)

// look judges a pod, and does what is to be done. It returns how long to wait until the next look,
// if something is to be done later. If failed is true, the look must be repeated; last marks the
// last attempt.
func (c *Controller) look(ctx context.Context, key string, last bool) (pause time.Duration, failed bool) {
	defer c.looked(key)
	pod, found, err := c.pod(ctx, key)
	if err == nil && (!found || !c.options.Select.Has(pod)) {
		c.forget(key)
		return 0, false
	}
	p := c.patient(key, types.UID(pod.UID))
	o := Outcome{Unseen: err}
	if err != nil {
		o.Finding = repair.Finding{Of: pod.Target(), Verdict: repair.Unknown, Reason: repair.ReasonNotObserved}
	} else {
		o.Finding, o.Unseen = c.diagnose(ctx, pod, p)
	}
	if pause = c.settles(p, o.Finding); pause > 0 {
		return pause, false
	}
	return c.treat(ctx, pod, p, o, last)
}

// treat does what is to be done about a pod that was judged. It returns the same as look.
func (c *Controller) treat(ctx context.Context, pod repair.Pod, p *patient, o Outcome, last bool) (pause time.Duration, failed bool) {
	isNew := c.noted(p, o)
	if o.Action, pause = c.decide(pod, p, o, last); pause > 0 {
		return pause, false
	}
	reported := !c.worthReporting(o, last) || !isNew && c.isReported(p, o.Finding)
	if !writes(o.Action.Do) && !isNew && reported {
		o.Action.Do = repair.ModeNothing // already reported
	}
	if isNew && o.Unseen != nil && o.Action.Do == repair.ModeNothing {
		c.options.OnOutcome(o) // nothing is known to be wrong
	}
	if pause = c.carryOut(ctx, pod, p, &o, reported); pause > 0 {
		return pause, false
	}
	return 0, o.lacks()
}

// settles returns how long to wait until it is certain that a pod without a record has not merely
// lost it with its network: the node removes that before the API server learns that the pod ends or
// has a new sandbox. A running pod that is new here, with its network just set up, is judged at
// once.
func (c *Controller) settles(p *patient, f repair.Finding) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Reason != repair.ReasonNotRecorded {
		p.missing = time.Time{}
		return 0
	}
	if !p.initial && !p.known {
		return 0
	}
	now := c.options.Now()
	if p.missing.IsZero() {
		p.missing = now
	}
	return p.missing.Add(settling).Sub(now)
}

// carryOut does what was decided, or returns how long to wait.
func (c *Controller) carryOut(ctx context.Context, pod repair.Pod, p *patient, o *Outcome, reported bool) (pause time.Duration) {
	switch o.Action.Do {
	case repair.ModeNothing:
		return 0
	case repair.ModeReport:
		o.Result = ResultSuccess
		if reported {
			break
		}
		if pause = c.report(ctx, p, o); pause > 0 {
			return pause
		}
	case repair.ModeLabel, repair.ModeDelete, repair.ModeEvict, repair.ModeRepair:
		c.act(ctx, pod, p, o)
	}
	c.count(*o)
	c.options.OnOutcome(*o)
	return 0
}

// pod returns the pod as it is known. It reads a pod from the API server if the informer keeps too
// little of it; with an error, only the pod's names are set.
func (c *Controller) pod(ctx context.Context, key string) (pod repair.Pod, found bool, err error) {
	object, found, err := c.options.Informer.GetStore().GetByKey(key)
	o, isPod := object.(*nodepods.Object)
	switch {
	case err != nil || !found:
		return repair.Pod{}, false, err
	case !isPod:
		return repair.Pod{}, false, fmt.Errorf("pod %s: the informer has %T: make it with Client.Informer", key, object)
	case !o.TooLarge:
		return podOf(o), true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	switch pod, err = c.options.Cluster.Pod(ctx, o.Namespace, o.Name); {
	case err != nil:
		return podOf(o), true, err
	case pod.UID != string(o.UID):
		return repair.Pod{}, false, nil // the informer will report it
	default:
		return pod, true, nil
	}
}

// patient returns what is remembered of the pod with this UID, and of no other pod of the same
// name.
func (c *Controller) patient(key string, uid types.UID) *patient {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.patients[key]
	if p == nil || p.uid != uid {
		p = &patient{uid: uid, initial: c.initial[key]}
		c.patients[key] = p
	}
	return p
}

func (c *Controller) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.patients, key)
}

func (c *Controller) looked(key string) {
	c.mu.Lock()
	delete(c.initial, key)
	c.mu.Unlock()
	c.options.OnStatus()
}

// diagnose judges the pod by its object, and if that does not suffice or it is the pod's turn, by
// its namespace and record. unseen is why these could not be looked at.
func (c *Controller) diagnose(ctx context.Context, pod repair.Pod, p *patient) (f repair.Finding, unseen error) {
	criteria := c.options.Criteria
	f = repair.Diagnose(pod, criteria)
	c.mu.Lock()
	round, looked := c.round, p.round
	p.failed = pod.Phase == repair.PhaseFailed
	c.mu.Unlock()
	if c.options.Namespaces == nil || pod.Phase == repair.PhaseFailed || !worthLooking(f, looked < round) {
		return f, nil
	}
	unseen = c.inNamespace(ctx, "look at", func(ctx context.Context) (err error) {
		criteria.Observed, err = c.options.Namespaces.Observe(ctx, pod)
		return err
	})
	record := criteria.Observed.Record
	c.mu.Lock()
	p.known = p.known || record != nil && record.UID == pod.UID
	if unseen == nil {
		p.round = round
	}
	c.mu.Unlock()
	return repair.Diagnose(pod, criteria), unseen
}

// inNamespace has something done in a pod's namespace within the time for that. The pod may change
// its namespace all the time, and must not keep a worker from other pods.
func (c *Controller) inNamespace(ctx context.Context, what string, do func(context.Context) error) error {
	limit := c.options.NamespaceTimeout
	late := fmt.Errorf("%s its network namespace: not done within %v, the pod may be changing it all the time", what, limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	err := do(ctx)
	if err != nil && errors.Is(context.Cause(ctx), late) {
		return fmt.Errorf("%w: %w", late, err)
	}
	return err
}

// worthLooking reports whether to look at a pod's namespace: if there is no other evidence, if the
// other evidence is not enough to act on, and if it is the pod's turn. A pod that opts out may have
// a record that proves otherwise.
func worthLooking(f repair.Finding, turn bool) bool {
	switch f.Verdict {
	case repair.Unknown, repair.Broken, repair.Suspect:
		return true
	case repair.Healthy, repair.Changed, repair.Outdated:
		return turn
	case repair.NotOurs:
		return turn && f.OfPod
	case repair.Pending:
		return false
	default:
		return false
	}
}

// noted remembers a finding, and reports whether it differs from the last one, or is the first
// without a look at the namespace.
func (c *Controller) noted(p *patient, o Outcome) (isNew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isNew = p.finding != summaryOf(o.Finding) || o.Unseen != nil && !p.unseen
	p.finding, p.unseen, p.waiting = summaryOf(o.Finding), o.Unseen != nil, ""
	if o.Unseen == nil && o.Finding.Plan == nil {
		p.unrepaired = 0
	}
	return isNew
}

// decide returns what to do now, taken from the budget, or how long to wait until the budget allows
// it. As long as the namespace could not be looked at, only the last attempt changes anything: the
// preferred mode may need it.
func (c *Controller) decide(pod repair.Pod, p *patient, o Outcome, last bool) (action repair.Action, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	action = c.prefer(pod, p, o.Finding)
	switch {
	case !writes(action.Do):
		return action, 0
	case o.Unseen != nil && !last:
		return reportInstead(action, "its namespace couldn't be looked at, which is tried again first"), 0
	case p.initial && c.round == 1 && !c.options.ActAtStart && !o.Finding.Has(repair.EvidenceValidator):
		return reportInstead(action, "it was there when this started: it is reported first, and dealt with after the next resync"), 0
	}
	budget, err := c.budget.Take(action, c.options.Now())
	var over *repair.LimitError
	switch {
	case err == nil:
		c.budget = budget
		return action, 0
	case errors.As(err, &over) && !over.Never:
		return action, c.wait(p, over.Limit, over.Wait)
	default:
		return reportInstead(action, err.Error()), 0
	}
}

// prefer returns what the policy says. If as many repairs in place have failed as there are
// attempts before the last, the next mode of the rule is used.
func (c *Controller) prefer(pod repair.Pod, p *patient, f repair.Finding) repair.Action {
	action := repair.Decide(pod, f, c.options.Policy)
	if action.Do != repair.ModeRepair || p.unrepaired < attempts-1 {
		return action
	}
	f.Plan, f.NoPlan = nil, fmt.Sprintf("that has failed %d times, the last time with: %v", p.unrepaired, p.unrepairedBy)
	return repair.Decide(pod, f, c.options.Policy)
}

// everyOf returns how often a limit that all pods share allows something; 0 for a limit that is the
// pod's own.
func (c *Controller) everyOf(limit string) time.Duration {
	switch limit {
	case repair.LimitWrites:
		return c.options.Limits.Writes.Every
	case repair.LimitDisruptions:
		return c.options.Limits.Disruptions.Every
	case limitReports:
		return c.options.Reports.Every
	default:
		return 0
	}
}

// limitReports is the name of a limit besides those of a budget.
const limitReports = "reports"

// wait returns how long a pod waits for a limit, after the pods that already wait for it.
func (c *Controller) wait(p *patient, limit string, atLeast time.Duration) time.Duration {
	before := 0
	for _, other := range c.patients {
		if other.waiting == limit {
			before++
		}
	}
	p.waiting = limit
	return min(max(atLeast, time.Millisecond)+time.Duration(before)*c.everyOf(limit), c.options.Resync)
}

func writes(m repair.Mode) bool { return m != repair.ModeNothing && m != repair.ModeReport }

func reportInstead(a repair.Action, why string) repair.Action {
	a.Skipped = append(a.Skipped, repair.Skipped{Mode: a.Do, Why: why})
	a.Do, a.Plan, a.Label = repair.ModeReport, nil, repair.Label{}
	return a
}
