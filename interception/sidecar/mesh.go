// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"errors"
	"fmt"
	"slices"

	"github.com/meshcni/meshcni/interception"
)

// Mesh is the treatment of a node's pods by one mesh. The plugin, the programs that repair pods and
// the tools all use the same value, so that they decide and plan alike. It has no state; the zero
// Mesh captures no pod.
type Mesh struct {
	// Dialect says how to recognise the mesh's pods and what they can configure.
	Dialect Dialect
	// Policy is the operator's configuration of the node.
	Policy Policy
	// Owner owns the rules of the mesh's plans.
	Owner interception.Owner
}

// Planned is the result of [Mesh.Plan].
type Planned struct {
	// Redirect is what the pod asks for.
	Redirect Redirect
	// Warnings are about settings of the pod without the expected effect. See [Dialect.Parse].
	Warnings []interception.Warning
	// Plan is the desired contents of the pod's network namespace.
	Plan *interception.Plan
}

// Validate returns every mistake that would leave pods of the mesh uncaptured, or capture pods
// outside of it, joined, or nil. See [Dialect.Validate].
func (m Mesh) Validate() error {
	var errs []error
	if err := m.Owner.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("owner of the rules: %w", err))
	}
	return errors.Join(append(errs, m.Dialect.membershipMistake(), m.Dialect.baseMistake(), m.Dialect.Validate())...)
}

// ByName decides by the pod's names alone, so that the caller need not look up the mesh's own
// agent, containers outside of Kubernetes, and pods of excluded namespaces. The second result
// reports whether the names sufficed. The decision is never to capture.
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

// ByAnnotations decides by the pod's names and annotations alone. A container runtime can pass
// annotations to a CNI plugin (https://www.cni.dev/docs/conventions/, capability
// io.kubernetes.cri.pod-annotations); the plugin then need not look up a pod without injection.
// The second result reports whether names and annotations sufficed. The decision is never to
// capture, and never by the pod's opt-out, because a label may override the annotation.
//
// The annotations must be complete. [Mesh.Decide] may give another reason for the same pod, but
// does not capture it either.
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

// Decide decides whether the pod is captured, by the first reason in their order that applies.
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

// Parse returns what a pod that [Mesh.Decide] captures asks for, as [Dialect.Parse] does. A
// redirect that captures nothing is an error that wraps [ErrDialect], unless the pod asked for
// that: otherwise the dialect would silently leave a pod of the mesh uncaptured. The warnings are
// valid even with an error.
func (m Mesh) Parse(pod interception.Pod) (Redirect, []interception.Warning, error) {
	redirect, warnings, err := m.Dialect.Parse(pod)
	if err == nil && redirect.leavesAllAlone() && !redirect.isAsked() {
		return Redirect{}, warnings, fmt.Errorf("%w: the pod is captured, but none of its traffic would be, which the pod did not ask for: "+
			"have the dialect's Base or the Default of a Field include some, or have Membership leave such pods alone", ErrDialect)
	}
	return redirect, warnings, err
}

// Plan returns the plan for a pod that [Mesh.Decide] captures, in a network namespace with these
// facts. It does not check that the pod is in the mesh. A caller for which the facts are costly can
// find mistakes in the pod first: it calls [Mesh.Parse] and then the function [Plan].
//
// The error is that of [Mesh.Parse] (it wraps an [interception.ParseError] or [ErrDialect]) or of
// the function [Plan] (it wraps [ErrRedirect] or [interception.ErrPlan]). Redirect and Warnings are
// then as far as known, and Plan is nil; the warnings are worth reporting.
func (m Mesh) Plan(pod interception.Pod, facts interception.Facts) (Planned, error) {
	var p Planned
	var err error
	if p.Redirect, p.Warnings, err = m.Parse(pod); err != nil {
		return p, err
	}
	p.Plan, err = Plan(p.Redirect, facts, m.Owner)
	return p, err
}
