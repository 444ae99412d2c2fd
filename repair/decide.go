// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// Decide returns what to do about a pod, given the finding and the policy. Healthy and pending
// pods, and pods that are not ours, are left alone under every policy. For other pods the first
// matching rule decides; without one the pod is reported. The finding must be about this very
// object: a pod that was recreated or has changed since is left alone until it is diagnosed again.
//
// These limits hold for every rule:
//
//   - Without a UID and a resourceVersion, a pod is not deleted, evicted or labelled.
//   - A static pod is not deleted or evicted: the node runs it, and the API server holds only its
//     mirror. Neither is a pod whose removal has begun, nor, unless the rule has LoseUnowned, a pod
//     without a controller.
//   - A pod that is never restarted is deleted or evicted only by a rule that names its owner's
//     kind.
//   - Only broken pods are repaired in place, by the finding's plan; the host's namespace never is.
func Decide(pod Pod, f Finding, p Policy) Action {
	action := Action{Do: ModeNothing, Target: f.Of, Owner: ownerName(pod)}
	switch {
	case pod.Target() != f.Of:
		action.Why = "the finding is about another state of the pod, or another pod: diagnose it again"
		return action
	case !actionable(f.Verdict):
		action.Why = fmt.Sprintf("it is %s (%s)", f.Verdict, f.Reason)
		return action
	}
	number, found := p.rule(pod, f.Verdict)
	if !found {
		action.Do, action.Why = ModeReport, fmt.Sprintf("%s (%s); no rule of the policy is about it", f.Verdict, f.Reason)
		return action
	}
	rule := p.Rules[number]
	action.Why = fmt.Sprintf("%s (%s); rule %d", f.Verdict, f.Reason, number)
	for _, mode := range rule.Do {
		if against := p.obstacle(mode, pod, f, rule); against != "" {
			action.Skipped = append(action.Skipped, Skipped{mode, against})
			continue
		}
		return p.carryOut(mode, action, pod, f)
	}
	if len(rule.Do) > 0 {
		action.Do = ModeReport
	}
	return action
}

// carryOut fills in what the mode needs.
func (p Policy) carryOut(mode Mode, a Action, pod Pod, f Finding) Action {
	a.Do = mode
	switch mode {
	case ModeLabel:
		a.Label = p.Label
		if value, there := pod.Labels[a.Label.Key]; there {
			a.Do, a.Why = ModeNothing, fmt.Sprintf("%s; it has the label %s=%q already", a.Why, a.Label.Key, value)
		}
	case ModeRepair:
		a.Plan = f.Plan
	case ModeNothing, ModeReport, ModeDelete, ModeEvict:
	}
	return a
}

// obstacle returns why a mode cannot be applied to a pod; empty if it can.
func (p Policy) obstacle(mode Mode, pod Pod, f Finding, rule Rule) string {
	switch mode {
	case ModeNothing, ModeReport:
		return ""
	case ModeLabel:
		if p.Label.Key == "" {
			return "the policy has no label: name one"
		}
		return unnamed(pod)
	case ModeDelete, ModeEvict:
		return againstDisruption(pod, rule)
	case ModeRepair:
		return againstRepair(pod, f)
	default:
		return fmt.Sprintf("%q is not a mode: name %s", mode, listed(modes()))
	}
}

// unnamed returns what the pod lacks for a request with preconditions.
func unnamed(pod Pod) string {
	if pod.UID == "" || pod.ResourceVersion == "" {
		return "the pod's UID or resourceVersion isn't known, so that another could be hit"
	}
	return ""
}

func againstDisruption(pod Pod, rule Rule) string {
	owner, owned := pod.Controller()
	disruption := pod.condition(conditionDisruption)
	switch {
	case unnamed(pod) != "":
		return unnamed(pod)
	case !pod.DeletionTimestamp.IsZero():
		return "it is being deleted already"
	case disruption.Status == "True":
		return "it is being taken away already: " + disruption.Reason
	case isStatic(pod, owner):
		return "it is a static pod, which its node keeps: restart it there"
	case !owned && !rule.LoseUnowned:
		return "no controller would create it again: set LoseUnowned, or delete it by hand"
	case pod.RestartPolicy == RestartNever && !slices.Contains(rule.OwnerKinds, owner.Kind):
		return "it is never restarted, and its work would be lost: have the rule name the owner kind " + strconv.Quote(owner.Kind)
	default:
		return ""
	}
}

// mirrorAnnotation marks the mirror of a static pod; the kubelet sets it
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror).
const mirrorAnnotation = "kubernetes.io/config.mirror"

func isStatic(pod Pod, owner OwnerReference) bool {
	_, mirrored := pod.Annotations[mirrorAnnotation]
	return mirrored || owner.Kind == "Node"
}

func againstRepair(pod Pod, f Finding) string {
	switch {
	case pod.HostNetwork:
		return "it shares the host's network namespace, which is never programmed"
	case pod.UID == "":
		return "the pod's UID isn't known, so that another could be hit"
	case f.Verdict != Broken:
		return fmt.Sprintf("it is %s, and only broken pods are repaired in place", f.Verdict)
	case !pod.DeletionTimestamp.IsZero(), pod.ended():
		return "its life is over"
	case f.Plan == nil && f.NoPlan != "":
		return f.NoPlan
	case f.Plan == nil:
		return "there is no plan"
	default:
		return ""
	}
}

func ownerName(pod Pod) string {
	owner, owned := pod.Controller()
	if !owned {
		return ""
	}
	return owner.Kind + " " + pod.Namespace + "/" + owner.Name
}

// Criteria are the information that [Diagnose] judges a pod by.
type Criteria struct {
	// Mesh decides which pods are captured and which the operator excluded, as the plugin does.
	// Without a Mesh, no pod is ours.
	Mesh Mesh
	// Node is the name of the node whose pods are judged; empty for the pods of all nodes.
	Node string
	// Validators are those that pods of the mesh may have. Without any, only the kernel gives
	// evidence.
	Validators []Validator
	// Planner is the version of the program that would plan now; empty if it is to be ignored.
	Planner string
	// Observed is what is known of the pod beyond its object. The zero value means that the pod was
	// not looked at.
	Observed Observation
}

func (c Criteria) decide(pod interception.Pod) interception.Decision {
	if c.Mesh == nil {
		return interception.Decision{Reason: reasonNoMesh}
	}
	return c.Mesh.Decide(pod)
}

// Observation is what a node knows of one pod.
type Observation struct {
	// State is what the pod's network namespace holds for the plugin's owner, as
	// [interception.Dataplane.Observe] returns it; nil if the namespace was not observed.
	State *interception.State
	// UID is the UID of the pod that the namespace belongs to, as the observer has established. A
	// State without it is ignored.
	UID string
	// Record is what was recorded when rules were applied to the pod; nil without a record.
	Record *Record
	// Unrecorded reports that all records were read, and that none belongs to this pod. If it is
	// false, a nil Record may mean that the records could not be read, or were not read.
	Unrecorded bool
	// Today is the plan that would be made now from the pod's annotations; nil if it is not known.
	// A record takes precedence over it.
	Today *interception.Plan
}

// Record is what was recorded when rules were applied to a pod: by an ADD, or by a later repair.
type Record struct {
	// UID is the pod's. The record of another pod of the same name is ignored.
	UID string
	// Time is when the rules were applied.
	Time time.Time
	// Planner is the version of the program that made the plan.
	Planner string
	// Plan is the plan that was applied.
	Plan *interception.Plan
}

// Mesh decides about pods as the plugin does, by the pod alone. A sidecar.Mesh is one.
type Mesh interface {
	// Decide returns whether the mesh captures the pod, and why. For a pod that is not captured, the
	// reason is also that of the finding [NotOurs]. A pod with a record stays in the mesh even so, if
	// OfPod is set: then a user who may edit the pod has brought the decision about.
	Decide(pod interception.Pod) interception.Decision
}
