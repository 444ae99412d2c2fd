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

// act does what changes something, and reports it on the pod.
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
		// The pod no longer exists, which is as good: there is no object to put an event on.
		o.Err = nil
		return
	}
	if o.Result == ResultSkip {
		return
	}
	o.EventErr = c.sendEvent(ctx, *o)
}

// repair has the namespace repaired, and looked at again.
func (c *Controller) repair(ctx context.Context, pod repair.Pod, p *patient, a repair.Action) error {
	// A plan comes from an observation: without Namespaces there is none.
	if c.options.Namespaces == nil {
		return errors.New("no finder knows the namespaces of this node's pods")
	}
	err := c.inNamespace(ctx, "repair", func(ctx context.Context) error { return c.options.Namespaces.Repair(ctx, pod, a.Plan) })
	c.mu.Lock()
	p.round, p.unrepaired, p.unrepairedBy = 0, p.unrepaired+1, err
	if err == nil {
		p.unrepaired = 0
	}
	c.mu.Unlock()
	if err == nil {
		c.queue.Add(pod.Namespace + "/" + pod.Name)
	}
	return err
}

// resultOf classifies an error. A refusal because the pod has changed, or because of a disruption
// budget, is no failure: the request is tried again.
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

// report reports a pod, or returns how long to wait until the limit of reports allows it.
func (c *Controller) report(ctx context.Context, p *patient, o *Outcome) (wait time.Duration) {
	c.mu.Lock()
	budget, err := c.reports.Take(repair.Action{Do: repair.ModeLabel, Target: o.Finding.Of}, c.options.Now())
	if over, ok := errors.AsType[*repair.LimitError](err); ok {
		wait = c.wait(p, limitReports, over.Wait)
		c.mu.Unlock()
		return wait
	}
	c.reports, p.reported, p.reportedAt = budget, summaryOf(o.Finding), c.options.Now()
	c.mu.Unlock()
	if o.EventErr = c.sendEvent(ctx, *o); o.EventErr != nil {
		o.Result = ResultFail
		c.mu.Lock()
		p.reported = summary{}
		c.mu.Unlock()
	}
	return 0
}

// worthReporting reports whether a finding deserves an event on the pod. After an upgrade every pod
// may be outdated, which is only counted. An unknown pod is reported after the last attempt to
// learn more; without Namespaces every pod without a validator is unknown, and only counted.
func (c *Controller) worthReporting(o Outcome, last bool) bool {
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

// isReported reports whether the pod has an event for this finding that has not expired.
func (c *Controller) isReported(p *patient, f repair.Finding) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return p.reported == summaryOf(f) && c.options.Now().Before(p.reportedAt.Add(reportAgain))
}

func (c *Controller) sendEvent(ctx context.Context, o Outcome) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	return c.options.Cluster.CreateEvent(ctx, Event{
		About: o.Finding.Of, Reason: reasonOf(o), Message: messageOf(o), Node: c.options.Criteria.Node, Component: c.options.Component,
	})
}

// reasonOf returns the event's reason: Istio's where it has one.
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

// mostMessage is the maximum length of an event's message
// (https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/, note).
const mostMessage = 1024

func messageOf(o Outcome) string {
	text := o.Finding.String()
	if o.Action.Do != repair.ModeReport {
		text = fmt.Sprintf("%s: done; %s", o.Action.Do, text)
		if o.Err != nil {
			text = fmt.Sprintf("%s failed: %v; %s", o.Action.Do, o.Err, o.Finding)
		}
	}
	if o.Unseen != nil {
		text += fmt.Sprintf("; not seen: %v", o.Unseen)
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

func (c *Controller) count(o Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[ModeResult{o.Action.Do, o.Result}]++
	if o.EventErr != nil {
		c.eventsFailed++
	}
}

// Outcome is the result of handling a pod.
type Outcome struct {
	// Finding and Action are what was found, and what was to be done.
	Finding repair.Finding
	Action  repair.Action
	// Result is whether it was done.
	Result Result
	// Err is why it was not, for ResultSkip and ResultFail.
	Err error
	// Unseen is why the pod's namespace or record could not be looked at, if that was tried.
	Unseen error
	// EventErr is why the event could not be put on the pod.
	EventErr error
}

// lacks reports whether some part must be tried again.
func (o Outcome) lacks() bool { return o.Err != nil || o.EventErr != nil || o.Unseen != nil }

// Result is the result of an action. The texts are stable: metrics use them.
type Result string

// The results.
const (
	// ResultSuccess: it was done.
	ResultSuccess Result = "success"
	// ResultSkip: nothing was left to do, or not now: the pod has changed or no longer exists, or a
	// disruption budget forbids it.
	ResultSkip Result = "skip"
	// ResultFail: it was not done, or the result is not known.
	ResultFail Result = "fail"
)

// Status is the state of a controller, in numbers.
type Status struct {
	// Scanned reports that every pod that existed at the start has been looked at.
	Scanned bool
	// Pods is the number of pods with each verdict. Pods that have failed do not count: they are
	// reported and dealt with, but send nothing any more.
	Pods map[repair.Verdict]int
	// Done is how often each mode had each result.
	Done map[ModeResult]int
	// Waiting is the number of pods that wait for a limit.
	Waiting int
	// Unseen is the number of pods whose namespace or record could not be looked at the last time.
	Unseen int
	// EventsFailed is how often an event could not be put on a pod.
	EventsFailed int
}

// ModeResult is a mode with its result.
type ModeResult struct {
	Mode   repair.Mode
	Result Result
}

// Status returns the current numbers.
func (c *Controller) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{
		Scanned: c.synced && len(c.initial) == 0, Pods: map[repair.Verdict]int{}, Done: maps.Clone(c.done), EventsFailed: c.eventsFailed,
	}
	for _, p := range c.patients {
		if p.finding.verdict != "" && !p.failed {
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
