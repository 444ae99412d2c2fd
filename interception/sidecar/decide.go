// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Policy is the operator's configuration of a node, independent of the mesh.
type Policy struct {
	// ExcludeNamespaces are the exact names of namespaces whose pods are left alone.
	ExcludeNamespaces []string
	// AgentNamespace and AgentName are the namespace and the DaemonSet of the mesh's own node
	// agent. Its pods are left alone without a look-up. No pod counts as an agent if either
	// is empty.
	AgentNamespace, AgentName string
}

// Membership says how to recognise a pod of a mesh. A test with an empty name is skipped.
type Membership struct {
	// ProxyContainer is the name of the sidecar proxy's container. A pod without it is left alone.
	ProxyContainer string
	// RuleContainer is a container that installs the rules itself. A pod with it is left alone.
	RuleContainer string
	// DisableEnv is a variable of the proxy container. If true, the proxy takes no traffic.
	DisableEnv string
	// ProxyCommand and ProxyType identify a sidecar: if the proxy container's first argument is
	// ProxyCommand, the second must be ProxyType or empty.
	ProxyCommand, ProxyType string
	// OptOut is a label or, without the label, an annotation. The value false leaves the pod alone.
	// A value that is not a boolean has no effect.
	OptOut string
	// InjectedAnnotation is set, to any value, by the injector. A pod without it is left alone.
	InjectedAnnotation string
}

// Decision is what [Mesh.Decide] decides about a pod.
type Decision = interception.Decision

// Reason names the outcome of [Mesh.Decide].
type Reason = interception.Reason

// The reasons, in the order of the tests.
const (
	// ReasonOwnAgent: the pod is the mesh's own node agent, which must always start.
	ReasonOwnAgent Reason = "own-agent"
	// ReasonNotKubernetes: the container runtime named no pod.
	ReasonNotKubernetes Reason = "not-kubernetes"
	// ReasonExcludedNamespace: the operator excluded the pod's namespace.
	ReasonExcludedNamespace Reason = "excluded-namespace"
	// ReasonHostNetwork: the pod shares the host's network namespace, which no plan is applied to.
	ReasonHostNetwork Reason = "host-network"
	// ReasonNoMesh: the dialect's Membership is empty.
	ReasonNoMesh Reason = "no-mesh"
	// ReasonRuleContainer: a container of the pod installs the rules itself.
	ReasonRuleContainer Reason = "rule-container"
	// ReasonNoProxy: the pod has no proxy container.
	ReasonNoProxy Reason = "no-proxy"
	// ReasonProxyDisabled: the pod's proxy takes no traffic.
	ReasonProxyDisabled Reason = "proxy-disabled"
	// ReasonProxyType: the pod's proxy is not a sidecar but, for example, a gateway.
	ReasonProxyType Reason = "proxy-type"
	// ReasonOptedOut: the pod opted out.
	ReasonOptedOut Reason = "opted-out"
	// ReasonNotInjected: no injector changed the pod.
	ReasonNotInjected Reason = "not-injected"
	// ReasonInMesh: the pod passed every test. It is the only reason with Capture.
	ReasonInMesh Reason = "in-mesh"
)

// isAgent recognises the pods of a DaemonSet by its name, '-' and a suffix.
func (p Policy) isAgent(namespace, name string) bool {
	if p.AgentNamespace == "" || p.AgentName == "" || namespace != p.AgentNamespace {
		return false
	}
	suffix, ok := strings.CutPrefix(name, p.AgentName+"-")
	return ok && suffix != ""
}

func ruleContainer(m Membership, pod interception.Pod) (Decision, bool) {
	if m.RuleContainer == "" {
		return Decision{}, false
	}
	_, found := pod.Container(m.RuleContainer)
	return Decision{Reason: ReasonRuleContainer, Detail: m.RuleContainer}, found
}

// proxy tests whether the pod has a proxy container that is an active sidecar.
func proxy(m Membership, pod interception.Pod) (Decision, bool) {
	if m.ProxyContainer == "" {
		return Decision{}, false
	}
	c, found := pod.Container(m.ProxyContainer)
	switch {
	case !found:
		return Decision{Reason: ReasonNoProxy, Detail: m.ProxyContainer}, true
	case m.DisableEnv != "" && isTrue(c.Env[m.DisableEnv]):
		return Decision{Reason: ReasonProxyDisabled, Detail: m.DisableEnv + "=" + c.Env[m.DisableEnv]}, true
	}
	if m.ProxyCommand != "" && len(c.Args) >= 2 && c.Args[0] == m.ProxyCommand {
		if kind := c.Args[1]; kind != "" && kind != m.ProxyType {
			return Decision{Reason: ReasonProxyType, Detail: kind}, true
		}
	}
	return Decision{}, false
}

func optedOut(m Membership, pod interception.Pod) (Decision, bool) {
	if m.OptOut == "" {
		return Decision{}, false
	}
	source, found := m.optOut(pod)
	value, err := strconv.ParseBool(source.Value)
	return Decision{Reason: ReasonOptedOut, Detail: source.String(), OfPod: true}, found && err == nil && !value
}

// optOut returns the label or, without it, the annotation.
func (m Membership) optOut(pod interception.Pod) (interception.Source, bool) {
	if value, found := pod.Labels[m.OptOut]; found {
		return interception.Source{Kind: interception.SourceLabel, Key: m.OptOut, Value: value}, true
	}
	value, found := pod.Annotations[m.OptOut]
	return interception.Source{Kind: interception.SourceAnnotation, Key: m.OptOut, Value: value}, found
}

func notInjected(m Membership, pod interception.Pod) (Decision, bool) {
	if m.InjectedAnnotation == "" {
		return Decision{}, false
	}
	_, found := pod.Annotations[m.InjectedAnnotation]
	return Decision{Reason: ReasonNotInjected, Detail: "no annotation " + m.InjectedAnnotation, OfPod: true}, !found
}

func isTrue(value string) bool {
	b, err := strconv.ParseBool(value)
	return err == nil && b
}
