// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/nodemode"
)

// leaving is a pod on its way. Free ones go without a turn.
//
//	in the former form ──turn, or free──> may be captured ──captured──> in both forms; the former
//	        ^                                    │                      withdraws it, and tries again
//	        └──────────────hasFailed─────────────┘                      after a failure: others go on
//	                                                                                 │
//	              not left any more <── gone ── passed: its old connections drain <──┘
type leaving struct {
	free      bool      // it may be captured out of turn: its sandbox is new, or it was between both forms at the start
	captured  bool      // by the new agent
	withdrawn bool      // the former agent was asked to withdraw it
	passed    bool      // the former agent captures no new connection of it
	passedAt  time.Time // when that was first known; until then, when the process began

	failure error // why the former agent has failed to withdraw the pod; nil if it has not

	// told is set when the agent on the node has asked which proxy takes the pod's tunnels, and the
	// answer has changed. That agent has obeyed when it tells of the pod after that, which sets
	// shared. With toPods the node then leaves the tunnels alone, and otherwise it captures them.
	told, shared bool
	prepared     bool // with toPods: it has rules with which the proxy in the pod can serve tunnels

	step ambient.Step // what the new agent told last
}

// forgetTurn forgets what an earlier turn has done about the pod's tunnels.
func (p *leaving) forgetTurn() { p.told, p.shared, p.prepared = false, false, false }

// hasFailed reports whether the new agent does not capture the pod although it may: it has failed
// since it told of the pod last, or something else has to be done first. Before it takes a step it
// tells of that together with an earlier failure.
func (p *leaving) hasFailed(now agent.Pod) bool {
	failed := !isFine(now) && (now.Step == "" || now.Step == p.step)
	return failed || !now.Wanted.Enrolled || now.Seen.Proxy != ambient.ProxyServes
}

// stuck returns why the former agent fails to withdraw a pod; nil if it does not. While it waits
// for the pod's connections, it goes on by itself.
func stuck(pod agent.Pod) error {
	if pod.Wanted.Enrolled || pod.Step.Waits() {
		return nil
	}
	return pod.Err
}

// isFine reports whether an agent has done for a pod what it can. Connections of a family that the
// proxy lacks are refused, which is an error, but keeps no pod from being captured.
func isFine(pod agent.Pod) bool { return pod.Err == nil || errors.Is(pod.Err, nodemode.ErrFamily) }

// isCaptured reports whether an agent has captured a pod.
func isCaptured(pod agent.Pod) bool {
	return isFine(pod) && pod.Step == "" && pod.Wanted.Enrolled && holds(pod.Seen)
}

// holds reports whether a form has all that it captures a pod with.
func holds(seen ambient.Seen) bool { return seen.InSets && seen.Rules == ambient.PlannedRules }

// waits reports whether the new agent waits for the pod's turn, and for nothing else.
func (p *leaving) waits() bool { return p != nil && !p.captured && p.step == ambient.StepAwaitTurn }
