// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Policy is what a node's operator decides about pods, whatever their mesh.
type Policy struct {
	// ExcludeNamespaces are left alone, by exact name.
	ExcludeNamespaces []string
	// AgentNamespace and AgentName are the namespace and the DaemonSet name of the mesh's own node agent, whose pods are left
	// alone without asking anybody. With an empty AgentNamespace or AgentName there is none.
	AgentNamespace, AgentName string
}

// Membership says how a pod of a mesh is known. A test whose name is empty is left out.
type Membership struct {
	// ProxyContainer is the name of the container that the proxy runs in. A pod without it is left alone.
	ProxyContainer string
	// RuleContainer is the name of a container that writes the rules itself. A pod with it is left alone.
	RuleContainer string
	// DisableEnv is a variable of the proxy container; when it is true, the pod has no proxy that takes traffic.
	DisableEnv string
	// ProxyCommand and ProxyType: when the proxy container's first argument is ProxyCommand, its second is the kind of proxy,
	// and only ProxyType (or an empty one) is a sidecar.
	ProxyCommand, ProxyType string
	// OptOut is a label, else an annotation, with a boolean value; false leaves the pod alone. A value that is no boolean says nothing.
	OptOut string
	// InjectedAnnotation is what the injector leaves behind. A pod without it is left alone; its value is of no account.
	InjectedAnnotation string
}

// Decision is whether a pod is captured, and why.
type Decision struct {
	// Capture says whether the pod is captured.
	Capture bool
	// Reason names the test that decided.
	Reason Reason
	// Detail is what the test found: a namespace, a container, a key with its value. It may be empty.
	Detail string
}

// String is the reason and its detail.
func (d Decision) String() string {
	if d.Detail == "" {
		return string(d.Reason)
	}
	return string(d.Reason) + " (" + d.Detail + ")"
}

// Reason names the outcome of [Mesh.Decide]. The texts are stable: logs and metrics use them.
type Reason string

// OfPod reports whether whoever may edit a pod that runs can bring the decision about. It says nothing about the rules in the pod's namespace,
// which are those of its start.
func (r Reason) OfPod() bool { return r == ReasonOptedOut || r == ReasonNotInjected }

// The reasons, in the order of the tests.
const (
	// ReasonOwnAgent: the pod is the mesh's own node agent, which must start even when nothing else works.
	ReasonOwnAgent Reason = "own-agent"
	// ReasonNotKubernetes: the runtime named no pod.
	ReasonNotKubernetes Reason = "not-kubernetes"
	// ReasonExcludedNamespace: the operator excluded the pod's namespace.
	ReasonExcludedNamespace Reason = "excluded-namespace"
	// ReasonHostNetwork: the pod shares the host's network namespace, which is never programmed.
	ReasonHostNetwork Reason = "host-network"
	// ReasonNoMesh: the dialect's Membership is empty.
	ReasonNoMesh Reason = "no-mesh"
	// ReasonRuleContainer: a container of the pod writes the rules itself.
	ReasonRuleContainer Reason = "rule-container"
	// ReasonNoProxy: the pod has no proxy container.
	ReasonNoProxy Reason = "no-proxy"
	// ReasonProxyDisabled: the pod's proxy takes no traffic.
	ReasonProxyDisabled Reason = "proxy-disabled"
	// ReasonProxyType: the pod's proxy is not a sidecar, but a gateway for example.
	ReasonProxyType Reason = "proxy-type"
	// ReasonOptedOut: the pod asked to be left alone.
	ReasonOptedOut Reason = "opted-out"
	// ReasonNotInjected: no injector has been at the pod.
	ReasonNotInjected Reason = "not-injected"
	// ReasonInMesh: every test was passed. It is the only one with Capture.
	ReasonInMesh Reason = "in-mesh"
)

// isAgent recognises the pods of a DaemonSet: its name, '-', and a suffix.
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

// proxy looks for the proxy container and at what it is.
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
	return Decision{Reason: ReasonOptedOut, Detail: source.String()}, found && err == nil && !value
}

// optOut finds the label, else the annotation.
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
	return Decision{Reason: ReasonNotInjected, Detail: "no annotation " + m.InjectedAnnotation}, !found
}

func isTrue(value string) bool {
	b, err := strconv.ParseBool(value)
	return err == nil && b
}
