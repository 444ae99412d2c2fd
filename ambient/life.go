// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"cmp"
	"strconv"
)

// Wanted is what should become of a pod on the node. The zero value withdraws it.
type Wanted struct {
	// Enrolled reports whether the node's proxy should serve the pod ([Enrolled]).
	Enrolled bool
	// Closed captures the pod's traffic although the proxy does not serve it yet, so that nothing
	// leaves in clear text. Until the proxy serves, connections are refused. Without it a pod that
	// runs is captured when the proxy serves it.
	Closed bool
	// Kept, beside Enrolled, reports that the agent knows the pod by its record alone, as after a
	// start while the API server is away. What the pod had is restored, and its status annotation
	// stays as it is.
	Kept bool
	// Held is the step beyond which the pod must not go yet, while its node changes the form of
	// capture with an agent for each form; empty if there is none. Pods move one at a time.
	//   - StepAwaitTurn, beside Enrolled: the other form captures the pod, and it is not this pod's
	//     turn. The agent makes ready what serves the pod, and captures nothing yet, even with
	//     Closed.
	//   - StepPrepare, beside Enrolled: it is the pod's turn, and tunnels of other proxies are about
	//     to go to the pod's own. The agent applies rules that capture nothing, with which that
	//     proxy can serve tunnels.
	//   - StepAwaitDrained, without Enrolled: tunnels may still go to the pod's own proxy, which
	//     serves the pod as long as they may.
	Held Step
	// Gone reports that the pod does not exist any more. Its namespace ends without help, and the
	// API server has no object to annotate.
	Gone bool
}

// Seen is what the node's agent has seen of a pod. The zero value is a pod that it never met.
type Seen struct {
	// Open reports whether the agent holds the pod's network namespace open.
	Open bool
	// Rules are those of the agent's plan in that namespace.
	Rules Rules
	// Proxy is how far the proxy is with the pod.
	Proxy Proxy
	// Drained reports, under draining rules, that the proxy has no connection of the pod any more,
	// or that the time for it is over.
	Drained bool
	// Undrainable reports that the kernel has refused to make the rules draining for as long as the
	// pod's connections would have been waited for.
	Undrainable bool
	// InSets reports whether the host's sets hold each address of the pod, with the pod as owner.
	// For a pod that is not wanted, true means that they hold at least one.
	InSets bool
	// Status is what the agent last called the pod, or what its status annotation said before.
	Status Status
}

// Rules is what a pod's namespace holds of the agent's plan.
type Rules uint8

// The kinds of rules.
const (
	// NoRules: nothing of the plan is there.
	NoRules Rules = iota
	// OtherRules: something of the plan is there, but it is not as planned.
	OtherRules
	// PlannedRules: the kernel holds the plan.
	PlannedRules
	// DrainingRules: nothing new is captured. What was captured goes on, and so does what comes to the
	// proxy by itself, such as tunnels of other proxies.
	DrainingRules
)

// String returns "none", "other", "planned" or "draining". The texts are stable.
func (r Rules) String() string {
	return text([]string{"none", "other", "planned", "draining"}, uint8(r))
}

// Proxy is how far the proxy is with a pod.
type Proxy uint8

// The stages. A proxy that has refused a pod stays at ProxyUntold, because it has to be told again.
const (
	// ProxyUntold: no connected proxy has acknowledged the pod.
	ProxyUntold Proxy = iota
	// ProxyTold: the proxy has acknowledged the pod, but its listeners are not all in the namespace.
	ProxyTold
	// ProxyServes: the proxy's listeners are in the namespace.
	ProxyServes
	// ProxyLost: the proxy has acknowledged the pod, and its listeners have been missing since, for
	// longer than it takes to open them. The proxy does not know: it would acknowledge the pod again,
	// and open none.
	ProxyLost
)

// String returns "untold", "told", "serves" or "lost". The texts are stable.
func (p Proxy) String() string {
	return text([]string{"untold", "told", "serves", "lost"}, uint8(p))
}

// text returns the text of a constant, or its number if it has none.
func text(of []string, i uint8) string {
	if int(i) < len(of) {
		return of[i]
	}
	return strconv.Itoa(int(i))
}

// Status is what the agent calls a pod, and the text of its status annotation. There, "enabled"
// stays until the pod leaves the mesh, also while the agent calls the pod "pending": istiod has
// other proxies send tunnels to a pod with that annotation, and clear text to any other.
type Status string

// The statuses.
const (
	// NoStatus: the pod has no such annotation.
	NoStatus Status = ""
	// StatusPending: the pod is captured, and the proxy does not serve it. Or the pod was enabled, and
	// the agent cannot find its network namespace, or restore its rules, or these have no effect. What
	// other proxies send to the pod is refused meanwhile, or reaches a proxy that goes on serving it.
	StatusPending Status = "pending"
	// StatusEnabled: the pod is captured, and the proxy serves it.
	StatusEnabled Status = "enabled"
)

// Step is something that the agent does for a pod. The texts are stable: logs and metrics use them.
type Step string

// The steps. Each can be repeated after a failure.
const (
	// StepOpen finds, verifies and opens the pod's network namespace.
	StepOpen Step = "open"
	// StepTell sends the pod with its namespace to the proxy, and waits for the acknowledgement.
	StepTell Step = "tell"
	// StepAwaitProxy waits until the proxy's listeners are in the namespace.
	StepAwaitProxy Step = "await-proxy"
	// StepPrepare applies the draining plan ([interception.Plan.Draining]) to a pod that may not be
	// captured yet. It waits then, at StepAwaitTurn.
	StepPrepare Step = "prepare"
	// StepAwaitTurn waits until a pod that is captured in another form may move to this one.
	StepAwaitTurn Step = "await-turn"
	// StepEnter adds the pod's addresses to the host's sets.
	StepEnter Step = "enter"
	// StepApply applies the plan.
	StepApply Step = "apply"
	// StepPending, StepEnabled and StepClear hand the status annotation over to be written, or to be
	// removed. They do not wait for the API server.
	StepPending Step = "pending"
	StepEnabled Step = "enabled"
	StepClear   Step = "clear"
	// StepDrain applies the draining plan to a pod that leaves.
	StepDrain Step = "drain"
	// StepAwaitDrained waits until the proxy has no connection of the pod any more.
	StepAwaitDrained Step = "await-drained"
	// StepWithdraw tells all proxies to forget the pod.
	StepWithdraw Step = "withdraw"
	// StepRemove removes the plan.
	StepRemove Step = "remove"
	// StepLeave removes the addresses that are the pod's from the host's sets.
	StepLeave Step = "leave"
	// StepClose closes the namespace.
	StepClose Step = "close"
)

// Waits reports whether the step waits for something that the agent can only observe.
func (s Step) Waits() bool {
	return s == StepAwaitProxy || s == StepAwaitDrained || s == StepAwaitTurn
}

// Next returns the steps that bring a pod from what was seen to what is wanted, in order; none if
// it is there. It is pure. The list ends with the first step that waits. The agent takes the steps
// one after the other. After a failure, or when it has seen something new, it asks again.
//
// To enrol a pod, the agent tells the proxy and waits until it serves. Then it adds the pod to the
// host's sets, so that no probe reaches the proxy, and at last it applies the rules. A pod that has
// the rules already stays captured while no proxy serves it, and so does every pod with
// Wanted.Closed: its connections are refused, and its status says "pending". A proxy that has lost
// the pod's listeners is told to forget the pod, and then told of it anew. With Wanted.Kept the
// same steps are taken but those that write the status. With Wanted.Held the agent waits before the
// first step that captures the pod.
//
// No program runs in a new pod before the pod is as wanted. The agent may therefore enter it and
// apply its rules while the proxy is at work on it.
//
// To withdraw a pod, the agent lets new connections go direct and waits for the end of those that
// the proxy has, and goes on waiting while Wanted.Held says so. Then the proxy forgets the pod, and
// the agent removes the rules. It keeps the namespace open until they are gone. If the kernel
// refuses to let new connections go direct for as long as the agent would wait, it removes the
// rules first.
func Next(wanted Wanted, seen Seen) []Step {
	var steps []Step
	for {
		step := seen.next(wanted)
		if step == "" {
			return steps
		}
		steps = append(steps, step)
		if step.Waits() {
			return steps
		}
		seen = seen.After(step)
	}
}

func (s Seen) next(wanted Wanted) Step {
	switch {
	case wanted.Gone:
		return s.forget()
	case wanted.Enrolled:
		return s.enrol(wanted)
	default:
		return s.withdraw(wanted)
	}
}

func (s Seen) enrol(w Wanted) Step {
	switch {
	case !s.Open:
		return StepOpen
	case s.Proxy == ProxyServes:
		return cmp.Or(s.capture(w), s.report(w, StatusEnabled, StepEnabled))
	case w.Closed && w.Held == "":
		return cmp.Or(s.report(w, StatusPending, StepPending), s.capture(w), s.serve())
	case s.captures():
		return cmp.Or(s.report(w, StatusPending, StepPending), s.serve())
	}
	return s.serve()
}

// captures reports whether new connections go to the proxy, or may do so.
func (s Seen) captures() bool { return s.Rules == PlannedRules || s.Rules == OtherRules }

// serve makes the proxy serve the pod.
func (s Seen) serve() Step {
	switch s.Proxy {
	case ProxyUntold:
		return StepTell
	case ProxyLost:
		return StepWithdraw
	case ProxyTold, ProxyServes:
	}
	return StepAwaitProxy
}

// capture makes the kernel capture the pod's connections, when it is the pod's turn.
func (s Seen) capture(w Wanted) Step {
	switch {
	case s.InSets && s.Rules == PlannedRules:
		return ""
	case w.Held == StepPrepare && (s.Rules == NoRules || s.Rules == OtherRules):
		return StepPrepare
	case w.Held != "":
		return StepAwaitTurn
	case !s.InSets:
		return StepEnter
	}
	return StepApply
}

// report has the status written, unless the annotation that the pod has is not known.
func (s Seen) report(w Wanted, status Status, step Step) Step {
	if s.Status == status || w.Kept {
		return ""
	}
	return step
}

func (s Seen) withdraw(w Wanted) Step {
	switch {
	case !s.Open && s.Rules != NoRules:
		return StepOpen
	case s.captures() && s.Undrainable:
		return StepRemove // and the proxy serves the pod until then
	case s.captures() && s.Proxy != ProxyUntold:
		return StepDrain
	case s.drains(w):
		return StepAwaitDrained
	case s.Proxy != ProxyUntold:
		return StepWithdraw
	case s.Rules != NoRules:
		return StepRemove
	}
	return s.rest()
}

// drains reports whether the proxy has, or may get, connections of a pod with draining rules.
func (s Seen) drains(w Wanted) bool {
	return s.Rules == DrainingRules && s.Proxy != ProxyUntold && (!s.Drained || w.Held == StepAwaitDrained)
}

// forget ends what the node holds for a pod that is gone.
func (s Seen) forget() Step {
	if s.Proxy != ProxyUntold {
		return StepWithdraw
	}
	s.Status = NoStatus
	return s.rest()
}

// rest ends what is left when rules and proxy are done with.
func (s Seen) rest() Step {
	switch {
	case s.InSets:
		return StepLeave
	case s.Status != NoStatus:
		return StepClear
	case s.Open:
		return StepClose
	}
	return ""
}

// After returns what is seen after a step that succeeded and did what it is for.
func (s Seen) After(step Step) Seen {
	switch step {
	case StepOpen, StepClose:
		s.Open = step == StepOpen
	case StepAwaitTurn: // nothing of the pod changes
	case StepTell:
		s.Proxy = ProxyTold
	case StepAwaitProxy:
		s.Proxy = ProxyServes
	case StepWithdraw:
		s.Proxy = ProxyUntold
	case StepEnter, StepLeave:
		s.InSets = step == StepEnter
	case StepApply:
		s.Rules, s.Drained, s.Undrainable = PlannedRules, false, false
	case StepPrepare, StepDrain:
		s.Rules, s.Drained, s.Undrainable = DrainingRules, false, false
	case StepAwaitDrained:
		s.Drained = true
	case StepRemove:
		s.Rules, s.Drained, s.Undrainable = NoRules, false, false
	case StepPending, StepEnabled, StepClear:
		s.Status = map[Step]Status{StepPending: StatusPending, StepEnabled: StatusEnabled}[step]
	}
	return s
}
