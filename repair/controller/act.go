// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/meshcni/meshcni/repair"
)

// act does what changes something, and tells of it on the pod.
func (c *Controller) act(ctx context.Context, pod repair.Pod, p *patient, o *Outcome) {
	if o.Action.Do == repair.ModeRepair {
		o.Err = c.repair(ctx, pod, p, o.Action)
	} else {
		asking, cancel := context.WithTimeout(ctx, c.options.Timeout)
		defer cancel()
		o.Err = c.options.Cluster.Do(asking, o.Action)
	}
	o.Result = resultOf(o.Err)
	if apierrors.IsNotFound(o.Err) {
		o.Err = nil // it is gone, which is as good; there is nothing to put an event on
		return
	}
	if o.Result == ResultSkip {
		return
	}
	o.Untold = c.tell(ctx, *o)
}

// repair has the namespace repaired, and looked at again.
func (c *Controller) repair(ctx context.Context, pod repair.Pod, p *patient, a repair.Action) error {
	if c.options.Namespaces == nil { // a plan comes from an observation: there is none without
		return errors.New("nobody knows the namespaces of this node's pods")
	}
	err := c.options.Namespaces.Repair(ctx, pod, a.Plan)
	c.mu.Lock()
	p.round = 0
	c.mu.Unlock()
	if err == nil {
		c.queue.Add(pod.Namespace + "/" + pod.Name)
	}
	return err
}

// resultOf says what an error means. What the API server refuses because the pod has changed, or for the sake of a disruption budget, is no
// failure: it is asked again.
func resultOf(err error) Result {
	switch {
	case err == nil:
		return ResultSuccess
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsTooManyRequests(err):
		return ResultSkip
	default:
		return ResultFail
	}
}

// report tells of a pod, or says how long to wait until the limit of reports allows it.
func (c *Controller) report(ctx context.Context, p *patient, o *Outcome) (wait time.Duration) {
	c.mu.Lock()
	budget, err := c.reports.Take(repair.Action{Do: repair.ModeLabel, Target: o.Finding.Of}, c.options.Now())
	var over *repair.LimitError
	if errors.As(err, &over) {
		wait = c.wait(p, limitReports, over.Wait)
		c.mu.Unlock()
		return wait
	}
	c.reports, p.told, p.toldAt = budget, summaryOf(o.Finding), c.options.Now()
	c.mu.Unlock()
	if o.Untold = c.tell(ctx, *o); o.Untold != nil {
		o.Result = ResultFail
		c.mu.Lock()
		p.told = summary{}
		c.mu.Unlock()
	}
	return 0
}

// worthTelling says whether people want to be told on the pod. After an upgrade every pod may be
// outdated, which is only counted. That nothing is known of a pod is told after the last attempt to find
// out; without Namespaces it is so of every pod that has no validator, and only counted.
func (c *Controller) worthTelling(o Outcome, last bool) bool {
	switch o.Finding.Verdict {
	case repair.Broken, repair.Suspect, repair.Changed:
		return true
	case repair.Unknown:
		return c.options.Namespaces != nil && (o.Unseen == nil || last)
	case repair.NotOurs, repair.Healthy, repair.Pending, repair.Outdated:
		return false
	default:
		return false
	}
}

// isTold says whether this was told on the pod, and is there still.
func (c *Controller) isTold(p *patient, f repair.Finding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.told == summaryOf(f) && c.options.Now().Before(p.toldAt.Add(tellAgain))
}

// tell puts an event on the pod.
func (c *Controller) tell(ctx context.Context, o Outcome) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	return c.options.Cluster.Tell(ctx, Event{
		About: o.Finding.Of, Reason: reasonOf(o), Message: messageOf(o), Node: c.options.Criteria.Node, Component: c.options.Component,
	})
}

// reasonOf is the event's: Istio's where it has one.
func reasonOf(o Outcome) string {
	switch o.Action.Do {
	case repair.ModeLabel:
		return "LabelBrokenPod"
	case repair.ModeDelete:
		return "DeleteBrokenPod"
	case repair.ModeEvict:
		return "EvictBrokenPod"
	case repair.ModeRepair:
		return "RepairBrokenPod"
	case repair.ModeNothing, repair.ModeReport:
	}
	verdict := string(o.Finding.Verdict)
	return strings.ToUpper(verdict[:1]) + verdict[1:] + "Pod"
}

// mostMessage is what an event takes (https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/, note).
const mostMessage = 1024

func messageOf(o Outcome) string {
	text := o.Finding.String()
	if o.Action.Do != repair.ModeReport {
		text = fmt.Sprintf("%s: done; %s", o.Action.Do, text)
		if o.Err != nil {
			text = fmt.Sprintf("%s failed: %v; %s", o.Action.Do, o.Err, o.Finding)
		}
	}
	for _, s := range o.Action.Skipped {
		text += fmt.Sprintf("; not %s: %s", s.Mode, s.Why)
	}
	const more = " … (the log has all)"
	if len(text) <= mostMessage {
		return text
	}
	text = text[:mostMessage-len(more)]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + more
}

// count counts an outcome.
func (c *Controller) count(o Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[ModeResult{o.Action.Do, o.Result}]++
	if o.Untold != nil {
		c.untold++
	}
}

// Outcome is what became of a pod.
type Outcome struct {
	// Finding and Action are what was found, and what was to be done.
	Finding repair.Finding
	Action  repair.Action
	// Result says whether it was done.
	Result Result
	// Err says why not, with ResultSkip and ResultFail.
	Err error
	// Unseen says why the pod's namespace or record couldn't be looked at, where that was tried.
	Unseen error
	// Untold says why the event about it isn't on the pod.
	Untold error
}

// lacks says whether something of it has to be tried again.
func (o Outcome) lacks() bool { return o.Err != nil || o.Untold != nil || o.Unseen != nil }

// Result is one of the results of an action. The texts are stable: metrics use them.
type Result string

// The results.
const (
	// ResultSuccess: it was done.
	ResultSuccess Result = "success"
	// ResultSkip: there was nothing to do any more, or not now: the pod has changed or is gone, or a disruption budget is in the way.
	ResultSkip Result = "skip"
	// ResultFail: it wasn't done, or nobody knows.
	ResultFail Result = "fail"
)

// Status is how a controller is doing, as numbers.
type Status struct {
	// Scanned says that every pod that was there at the start has been looked at.
	Scanned bool
	// Pods are how many there are of each verdict.
	Pods map[repair.Verdict]int
	// Done are how often each mode had each result.
	Done map[ModeResult]int
	// Waiting are the pods about which something is to be done that is over a limit now.
	Waiting int
	// Unseen are the pods whose namespace or record couldn't be looked at when that was tried last.
	Unseen int
	// Untold is how often an event couldn't be put on a pod.
	Untold int
}

// ModeResult is a mode with its result.
type ModeResult struct {
	Mode   repair.Mode
	Result Result
}

// Status is how it is going.
func (c *Controller) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{
		Scanned: c.synced && len(c.initial) == 0, Pods: map[repair.Verdict]int{}, Done: maps.Clone(c.done), Untold: c.untold,
	}
	for _, p := range c.patients {
		if p.finding.verdict != "" {
			s.Pods[p.finding.verdict]++
		}
		if p.waiting != "" {
			s.Waiting++
		}
		if p.unseen {
			s.Unseen++
		}
	}
	return s
}
