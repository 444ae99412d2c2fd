// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"

	"github.com/meshcni/meshcni/repair"
)

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
