// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// Decide says what is to be done about a pod, by the finding about it and the policy. Healthy and pending pods, and those that are not
// ours, are left alone under every policy. About all others the first rule that fits decides, and without one they are reported. The
// finding must be about the very object: about one that has been made anew or has changed since nothing is done, as it has to be
// diagnosed again.
//
// Whatever a rule says:
//
//   - Without UID and resourceVersion nothing is deleted, evicted or labelled.
//   - The pods of a node (static pods) aren't deleted or evicted: the node keeps them, and the API server has their image only. Nor are
//     pods that somebody has begun to take away, nor, unless the rule says so, pods without a controller.
//   - A pod that is never restarted is deleted or evicted by a rule that names its owner's kind.
//   - Only broken pods are repaired in place, by the finding's plan; never the host's namespace.
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

// carryOut completes an action with what its mode takes.
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

// obstacle says why a mode cannot be done to a pod; empty when it can.
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
		return fmt.Sprintf("%q is no mode: name %s", mode, listed(modes()))
	}
}

// unnamed says what the pod lacks for a request with preconditions.
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
		return "no controller would make it anew: set LoseUnowned, or delete it by hand"
	case pod.RestartPolicy == RestartNever && !slices.Contains(rule.OwnerKinds, owner.Kind):
		return "it is never restarted, and its work would be lost: have the rule name the owner kind " + strconv.Quote(owner.Kind)
	default:
		return ""
	}
}

// mirrorAnnotation is what the kubelet puts on the image of a static pod
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

// ownerName is the controller's kind, namespace and name.
func ownerName(pod Pod) string {
	owner, owned := pod.Controller()
	if !owned {
		return ""
	}
	return owner.Kind + " " + pod.Namespace + "/" + owner.Name
}

// Criteria are what a pod is judged by.
type Criteria struct {
	// Mesh says which pods are captured, and which the operator excluded, as it does to the plugin. Without one, no pod is ours.
	Mesh Mesh
	// Node is the name of the node that is looked after; with an empty one, every node's pods are.
	Node string
	// Validators are those that pods of the mesh may have. Without any, only the kernel speaks.
	Validators []Validator
	// Planner is the version of the program that would plan now; empty when that is of no account.
	Planner string
	// Observed is what is known of the one pod, beyond its object. The zero value: nobody has looked.
	Observed Observation
}

func (c Criteria) decide(pod interception.Pod) Decision {
	if c.Mesh == nil {
		return Decision{Reason: reasonNoMesh}
	}
	return c.Mesh.Decide(pod)
}

// Observation is what a node knows of one pod.
type Observation struct {
	// State is what the pod's network namespace holds for the plugin's owner, as [interception.Dataplane.Observe] reads it; nil when
	// nobody has looked.
	State *interception.State
	// UID is that of the pod whose namespace it was, as the one who found it has established. A State without it is not believed.
	UID string
	// Record is what was recorded when rules were applied to the pod; nil when there is none.
	Record *Record
	// Unrecorded says that all records were read, and that none is of this pod. Without it, a nil Record may be one that could not be read,
	// or that nobody has looked for.
	Unrecorded bool
	// Today is the plan that would be made now of the pod's annotations; nil when that isn't known. What the record says takes
	// precedence wherever there is one.
	Today *interception.Plan
}

// Record is what was recorded when rules were applied to a pod: by an ADD, or by a repair since.
type Record struct {
	// UID is the pod's. A record of another pod of the same name is not believed.
	UID string
	// Time is when.
	Time time.Time
	// Planner is the version of the program that planned it.
	Planner string
	// Plan is what was applied.
	Plan *interception.Plan
}

// Mesh decides about pods as the plugin does, by the pod alone.
type Mesh interface {
	// Decide says whether the mesh captures the pod, and why.
	Decide(pod interception.Pod) Decision
}

// Decision is whether a mesh captures a pod.
type Decision struct {
	// Captured says whether the mesh captures the pod.
	Captured bool
	// Reason names what decided. A pod that is not captured is [NotOurs] for it.
	Reason Reason
	// Detail is what was found: a namespace, a container, a key with its value. It may be empty.
	Detail string
	// OfPod says that whoever may edit the pod can bring the decision about, as by a label. A pod that has a record is the mesh's all the same.
	OfPod bool
}

// String is the reason and its detail.
func (d Decision) String() string {
	if d.Detail == "" {
		return string(d.Reason)
	}
	return string(d.Reason) + " (" + d.Detail + ")"
}
