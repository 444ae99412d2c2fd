// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// Pod is a pod of the node as ambient mode sees it.
type Pod struct {
	interception.Pod

	// Phase is status.phase, such as "Running"; empty if it is not known.
	Phase string `json:"phase,omitempty"`
	// Addresses are status.podIPs; empty before the pod has any.
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Created is metadata.creationTimestamp, and Ready reports whether the condition Ready is true.
	// They are told of the node's proxies alone, and are zero for other pods.
	Created time.Time `json:"created,omitzero"`
	Ready   bool      `json:"ready,omitempty"`
}

// Finished reports whether all containers of the pod have ended for good. Such a pod has no network
// any more, and its addresses may belong to another pod already.
func (p Pod) Finished() bool { return p.Phase == "Succeeded" || p.Phase == "Failed" }

// Namespace is the Kubernetes namespace of a pod.
type Namespace struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Policy is the operator's choice of the pods that the node's proxy serves. The zero value enrols
// none.
type Policy struct {
	// Selectors select the pods. One that matches is enough.
	Selectors []Selector
	// ExcludeNamespaces are the exact names of namespaces whose pods are left alone.
	ExcludeNamespaces []string
	// ProxyNamespace and ProxyLabels identify the node's proxy, which must not be captured by its
	// own rules. No pod counts as the proxy if either is empty.
	ProxyNamespace string
	ProxyLabels    map[string]string
	// SidecarAnnotation is set, to any value, on pods that have a sidecar. Such a pod is left alone.
	// An empty name skips the test.
	SidecarAnnotation string
}

// IstioPolicy returns Istio's default policy. The pods of a namespace with the label
// istio.io/dataplane-mode=ambient are enrolled, except those whose own label of that name is
// "none". A pod with the value "ambient" is enrolled in any namespace.
func IstioPolicy() Policy {
	const mode = "istio.io/dataplane-mode"
	is := func(operator Operator, value string) LabelSelector {
		return LabelSelector{MatchExpressions: []Requirement{{Key: mode, Operator: operator, Values: []string{value}}}}
	}
	return Policy{
		Selectors: []Selector{
			{Pod: is(In, "ambient")},
			{Pod: is(NotIn, "none"), Namespace: is(In, "ambient")},
		},
		ExcludeNamespaces: []string{"kube-system"},
		ProxyNamespace:    "istio-system",
		ProxyLabels:       map[string]string{"app": "ztunnel"},
		SidecarAnnotation: "sidecar.istio.io/status",
	}
}

// Validate returns an error that names each invalid selector.
func (p Policy) Validate() error {
	for i, selector := range p.Selectors {
		if err := selector.Validate(); err != nil {
			return fmt.Errorf("selector %d: %w", i+1, err)
		}
	}
	return nil
}

// The reasons of [Enrolled], in the order of the tests.
const (
	// ReasonHostNetwork: the pod shares the host's network namespace.
	ReasonHostNetwork interception.Reason = "host-network"
	// ReasonFinished: the pod has ended for good.
	ReasonFinished interception.Reason = "finished"
	// ReasonProxy: the pod is the node's proxy.
	ReasonProxy interception.Reason = "proxy"
	// ReasonExcludedNamespace: the operator excluded the pod's namespace.
	ReasonExcludedNamespace interception.Reason = "excluded-namespace"
	// ReasonSidecar: the pod has a sidecar.
	ReasonSidecar interception.Reason = "sidecar"
	// ReasonNotSelected: no selector matches.
	ReasonNotSelected interception.Reason = "not-selected"
	// ReasonSelected: a selector matches. It is the only reason with Capture.
	ReasonSelected interception.Reason = "selected"
)

// Enrolled decides whether the node's proxy serves the pod. The first test that applies decides.
// The namespace must be that of the pod.
//
// Decision.OfPod is true where labels or annotations decided. In contrast to sidecars, a change of
// those enrols or withdraws a running pod.
func Enrolled(pod Pod, namespace Namespace, policy Policy) interception.Decision {
	switch {
	case pod.HostNetwork:
		return interception.Decision{Reason: ReasonHostNetwork}
	case pod.Finished():
		return interception.Decision{Reason: ReasonFinished, Detail: pod.Phase}
	case policy.IsProxy(pod):
		return interception.Decision{Reason: ReasonProxy, Detail: pod.Namespace + "/" + pod.Name}
	case slices.Contains(policy.ExcludeNamespaces, pod.Namespace):
		return interception.Decision{Reason: ReasonExcludedNamespace, Detail: pod.Namespace}
	}
	if _, found := pod.Annotations[policy.SidecarAnnotation]; found && policy.SidecarAnnotation != "" {
		return interception.Decision{Reason: ReasonSidecar, Detail: "annotation " + policy.SidecarAnnotation, OfPod: true}
	}
	for i, selector := range policy.Selectors {
		if selector.Matches(pod.Labels, namespace.Labels) {
			return interception.Decision{Capture: true, Reason: ReasonSelected, Detail: fmt.Sprintf("selector %d", i+1), OfPod: true}
		}
	}
	return interception.Decision{Reason: ReasonNotSelected, OfPod: true}
}

// IsProxy reports whether a pod is the node's proxy, by its namespace and its labels. Any user can
// set the labels on a pod, but not in the proxy's namespace.
func (p Policy) IsProxy(pod Pod) bool {
	return p.ProxyNamespace != "" && len(p.ProxyLabels) > 0 && pod.Namespace == p.ProxyNamespace &&
		LabelSelector{MatchLabels: p.ProxyLabels}.Matches(pod.Labels)
}

// Change is news of the pods of a node and of their namespaces, from whatever knows them to the
// node's agent. The zero value tells nothing.
type Change struct {
	// Namespaces and Pods are new or have changed. Namespaces come no later than their pods.
	Namespaces []Namespace
	Pods       []Pod
	// Gone are the UIDs of pods that do not exist any more.
	Gone []string
	// Complete reports that with this change all pods of the node have been told. Before, a pod that
	// was not told may exist.
	Complete bool
}
