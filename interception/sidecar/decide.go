// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"slices"
	"strconv"
	"strings"

	"github.com/meshcni/meshcni/interception"
)

// Policy is what a node's operator decides about pods, and which mesh it is about.
type Policy struct {
	// Membership says how a pod of the mesh is known; a [Dialect] has it.
	Membership Membership
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

// Reason names the outcome of [Decide]. The texts are stable: logs and metrics use them.
type Reason string

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
	// ReasonNoMesh: the policy's Membership is empty.
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

// DecideByName decides as far as the pod's names allow, without knowing more about it: for the own agent, for what is no
// pod at all, and for excluded namespaces, nobody has to be asked. The second result says whether that was enough; it is
// never a decision to capture.
func DecideByName(namespace, name string, p Policy) (Decision, bool) {
	switch {
	case p.isAgent(namespace, name):
		return Decision{Reason: ReasonOwnAgent, Detail: namespace + "/" + name}, true
	case namespace == "" || name == "":
		return Decision{Reason: ReasonNotKubernetes}, true
	case slices.Contains(p.ExcludeNamespaces, namespace):
		return Decision{Reason: ReasonExcludedNamespace, Detail: namespace}, true
	default:
		return Decision{}, false
	}
}

// DecideByAnnotations decides as far as the pod's names and annotations allow, without knowing more about it. A container runtime can
// pass them to a CNI plugin (https://www.cni.dev/docs/conventions/, capability io.kubernetes.cri.pod-annotations), and then nobody
// has to be asked about a pod that no injector has been at. The second result says whether that was enough. It is never a decision to
// capture, and none by the pod's opt-out: a label that isn't here may say the opposite.
//
// The annotations must be all that the pod has. Where [Decide] names another reason for the same pod, it does not capture it either.
func DecideByAnnotations(namespace, name string, annotations map[string]string, p Policy) (Decision, bool) {
	if d, decided := DecideByName(namespace, name, p); decided {
		return d, true
	}
	d, decided := notInjected(p.Membership, interception.Pod{Annotations: annotations})
	if !decided {
		return Decision{}, false
	}
	return d, true
}

// isAgent recognises the pods of a DaemonSet: its name, '-', and a suffix.
func (p Policy) isAgent(namespace, name string) bool {
	if p.AgentNamespace == "" || p.AgentName == "" || namespace != p.AgentNamespace {
		return false
	}
	suffix, ok := strings.CutPrefix(name, p.AgentName+"-")
	return ok && suffix != ""
}

// Decide says whether the pod is captured. The tests are made in the order of the reasons, and the first that speaks decides. By a
// [Policy] with the zero [Membership], which knows no mesh, none is.
func Decide(pod interception.Pod, p Policy) Decision {
	if d, decided := DecideByName(pod.Namespace, pod.Name, p); decided {
		return d
	}
	if pod.HostNetwork {
		return Decision{Reason: ReasonHostNetwork}
	}
	if p.Membership == (Membership{}) {
		return Decision{Reason: ReasonNoMesh}
	}
	for _, test := range []func(Membership, interception.Pod) (Decision, bool){ruleContainer, proxy, optedOut, notInjected} {
		if d, decided := test(p.Membership, pod); decided {
			return d
		}
	}
	return Decision{Capture: true, Reason: ReasonInMesh}
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
