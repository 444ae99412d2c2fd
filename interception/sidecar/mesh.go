// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"errors"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Mesh is what one mesh does with the pods of a node. The plugin, the programs that repair pods and the tools all ask the same value, so
// that they judge and plan alike. It is a value without state; the zero Mesh captures no pod.
type Mesh struct {
	// Dialect says how the mesh's pods are known, and what they can ask for.
	Dialect Dialect
	// Policy is what the node's operator decides.
	Policy Policy
	// Owner is whose rules the mesh's plans are.
	Owner interception.Owner
}

// Planned is what a mesh makes of a captured pod.
type Planned struct {
	// Redirect is what the pod asks for.
	Redirect Redirect
	// Warnings are about parts of the pod that may not do what its author expects. See [Dialect.Parse].
	Warnings []interception.Warning
	// Plan is what has to be in the pod's network namespace.
	Plan *interception.Plan
}

// Validate reports every mistake in the mesh by which pods would pass the mesh by, or by which pods
// outside of it would be captured, joined; nil when there is none. See [Dialect.Validate].
func (m Mesh) Validate() error {
	var errs []error
	if err := m.Owner.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("owner of the rules: %w", err))
	}
	return errors.Join(append(errs, m.Dialect.membershipMistake(), m.Dialect.baseMistake(), m.Dialect.Validate())...)
}

// ByName decides as far as the pod's names allow, without knowing more about it: for the own agent, for what is no pod at all, and for
// excluded namespaces, no source has to be asked. The second result says whether that was enough; it is never a decision to capture.
func (m Mesh) ByName(namespace, name string) (Decision, bool) {
	switch {
	case m.Policy.isAgent(namespace, name):
		return Decision{Reason: ReasonOwnAgent, Detail: namespace + "/" + name}, true
	case namespace == "" || name == "":
		return Decision{Reason: ReasonNotKubernetes}, true
	case slices.Contains(m.Policy.ExcludeNamespaces, namespace):
		return Decision{Reason: ReasonExcludedNamespace, Detail: namespace}, true
	default:
		return Decision{}, false
	}
}

// ByAnnotations decides as far as the pod's names and annotations allow, without knowing more about it. A container runtime can pass them to
// a CNI plugin (https://www.cni.dev/docs/conventions/, capability io.kubernetes.cri.pod-annotations), and then no source has to be asked
// about a pod that no injector has been at. The second result says whether that was enough. It is never a decision to capture, and none by
// the pod's opt-out: a label that isn't here may say the opposite.
//
// The annotations must be all that the pod has. Where [Mesh.Decide] names another reason for the same pod, it does not capture it either.
func (m Mesh) ByAnnotations(namespace, name string, annotations map[string]string) (Decision, bool) {
	if d, decided := m.ByName(namespace, name); decided {
		return d, true
	}
	d, decided := notInjected(m.Dialect.Membership, interception.Pod{Annotations: annotations})
	if !decided {
		return Decision{}, false
	}
	return d, true
}

// Decide says whether the pod is captured. The tests are made in the order of the reasons, and the first that speaks decides.
func (m Mesh) Decide(pod interception.Pod) Decision {
	if d, decided := m.ByName(pod.Namespace, pod.Name); decided {
		return d
	}
	if pod.HostNetwork {
		return Decision{Reason: ReasonHostNetwork}
	}
	if m.Dialect.Membership == (Membership{}) {
		return Decision{Reason: ReasonNoMesh}
	}
	for _, test := range []func(Membership, interception.Pod) (Decision, bool){ruleContainer, proxy, optedOut, notInjected} {
		if d, decided := test(m.Dialect.Membership, pod); decided {
			return d
		}
	}
	return Decision{Capture: true, Reason: ReasonInMesh}
}

// Parse reads what a pod that [Mesh.Decide] captures asks for, as [Dialect.Parse] does. A redirect
// that captures nothing is an error that wraps [ErrDialect], unless the pod itself asked for that:
// the dialect would have a pod of the mesh run uncaptured in silence. The warnings are worth
// reporting beside the error.
func (m Mesh) Parse(pod interception.Pod) (Redirect, []interception.Warning, error) {
	redirect, warnings, err := m.Dialect.Parse(pod)
	if err == nil && redirect.leavesAllAlone() && !redirect.isAsked() {
		return Redirect{}, warnings, fmt.Errorf("%w: the pod is captured, but none of its traffic would be, which the pod did not ask for: "+
			"have the dialect's Base or the Default of a Field include some, or have Membership leave such pods alone", ErrDialect)
	}
	return redirect, warnings, err
}

// Plan makes the plan of a pod that [Mesh.Decide] captures, for a network namespace with these
// facts. It takes the pod to be one of the mesh. A caller that learns the facts with effort, and
// would rather hear of mistakes in the pod first, calls [Mesh.Parse] and the function [Plan] one
// after the other.
//
// The error is that of [Mesh.Parse] (it wraps an [interception.ParseError] or [ErrDialect]), or
// that of the function [Plan] (it wraps [ErrRedirect] or [interception.ErrPlan]). The result then
// holds what was known before, without a Plan: its warnings are worth reporting beside the error.
func (m Mesh) Plan(pod interception.Pod, facts interception.Facts) (Planned, error) {
	var p Planned
	var err error
	if p.Redirect, p.Warnings, err = m.Parse(pod); err != nil {
		return p, err
	}
	p.Plan, err = Plan(p.Redirect, facts, m.Owner)
	return p, err
}
