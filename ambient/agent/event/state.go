// SPDX-License-Identifier: Apache-2.0

package event

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/meshcni/meshcni/interception"
)

// Node is what the agent knows of its node: the answer to /v1/pods.
type Node struct {
	// Complete reports whether the agent has heard of all pods of the node. Before, others may exist.
	Complete bool `json:"complete"`
	// Withdrawn reports whether all pods were taken out of the mesh by command.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// Proxy is how the node's proxy is connected. Where the node's namespace captures the pods, the
	// proxy does not connect to the agent: it counts as connected while it has its listeners.
	Proxy ProxyState `json:"proxy"`
	// Host is why the rules of the host are not as they should be; empty if they are.
	Host string `json:"host,omitempty"`
	// Pods are those that were asked for, by name.
	Pods []PodState `json:"pods"`
}

// ProxyState is how the node's proxy is connected to the agent.
type ProxyState struct {
	// Connection says whether a proxy is connected.
	Connection Connection `json:"connection"`
	// Connections is how many are connected: two while the proxy is being replaced.
	Connections int `json:"connections,omitempty"`
	// Since is when the newest one connected, or when the last one was lost; zero if none has ever
	// connected.
	Since time.Time `json:"since,omitzero"`
	// Error is why a connection ended last; empty if none has ended.
	Error string `json:"error,omitempty"`
}

// Connection says whether a proxy is connected.
type Connection string

// The connections.
const (
	// ProxyConnected: a proxy is connected.
	ProxyConnected Connection = "connected"
	// ProxyLost: a proxy was connected since the agent began, and none is now.
	ProxyLost Connection = "lost"
	// ProxyNeverConnected: no proxy has connected since the agent began.
	ProxyNeverConnected Connection = "never-connected"
)

// PodState is what the agent knows of a pod: what was decided and what was seen.
type PodState struct {
	UID string `json:"uid"`
	// RuntimeUID is the UID by which the kubelet and the container runtime know a static pod: the one
	// that UID has is its mirror's. It is empty for other pods.
	RuntimeUID string `json:"runtimeUID,omitempty"`

	Namespace string       `json:"namespace,omitempty"`
	Name      string       `json:"name,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Eligible reports whether the pod is to be enrolled, and Reason and Detail say why. An empty
	// Reason means that the agent has not heard of the pod or of its Kubernetes namespace.
	Eligible bool                `json:"eligible"`
	Reason   interception.Reason `json:"reason,omitempty"`
	Detail   string              `json:"detail,omitempty"`
	// Managed reports whether the agent deals with the pod. Of another pod nothing was seen, and what
	// follows is empty, except Annotation.
	Managed bool `json:"managed"`
	// Rules is what the pod's namespace holds of the plan: "none", "other", "planned" or "draining".
	Rules string `json:"rules,omitempty"`
	// Listeners is how far the proxy is with the pod: "untold", "told", "serves" if its listeners are
	// in the namespace, or "lost" if they have been missing there for a while.
	Listeners string `json:"listeners,omitempty"`
	// InSets reports whether the host's sets have the pod's addresses. For a pod that leaves the
	// mesh, one of them is enough.
	InSets bool `json:"inSets,omitempty"`
	// Status is what the agent calls the pod, and Annotation the status annotation that the API
	// server has told last, in which "enabled" is never replaced by "pending".
	Status     string `json:"status,omitempty"`
	Annotation string `json:"annotation,omitempty"`
	// Step is what is done or waited for; empty if the pod is as wanted.
	Step string `json:"step,omitempty"`
	// Error is the last failure; empty if there is none since the last success.
	Error string `json:"error,omitempty"`
	// Refusal is the text with which the proxy refuses the pod; empty if it does not.
	Refusal string `json:"refusal,omitempty"`
	// Since is when Step and Error became what they are.
	Since time.Time `json:"since,omitzero"`
	// Warnings are about annotations of the pod that have no effect, each with what would have it.
	Warnings []string `json:"warnings,omitempty"`
	// Foreign are the chains of other programs in the pod's namespace whose rules packets pass before
	// the agent's. Only an answer about one pod has them. ForeignError is why they were not looked at;
	// empty if they were.
	Foreign      []ForeignChain `json:"foreign,omitempty"`
	ForeignError string         `json:"foreignError,omitempty"`
}

// ForeignChain is another program's base chain in a pod's namespace.
type ForeignChain struct {
	// Table is the table with its family, such as "ip mangle"; "legacy ip mangle" is of
	// iptables-legacy. Hook and Priority place the chain.
	Table    string `json:"table"`
	Name     string `json:"name"`
	Hook     string `json:"hook"`
	Priority int32  `json:"priority"`
	// Rules are those that can change what becomes of a packet, and Marks those of them that set bits
	// of the mesh's marks.
	Rules []string `json:"rules"`
	Marks []string `json:"marks,omitempty"`
}

// String returns the chain with its place, such as
// "ip mangle/PREROUTING (hook prerouting, priority -150)".
func (c ForeignChain) String() string {
	return fmt.Sprintf("%s/%s (hook %s, priority %d)", c.Table, c.Name, c.Hook, c.Priority)
}

// String returns namespace and name, or the UID if those are not known.
func (p PodState) String() string {
	if p.Name == "" {
		return p.UID
	}
	return p.Namespace + "/" + p.Name
}

// Selection selects pods by their UID, or by their names. A static pod has two UIDs, and each
// selects it. The zero value selects all pods of the node.
type Selection struct {
	UID, Namespace, Name string
}

// Matches reports whether the selection has a pod.
func (s Selection) Matches(pod PodState) bool {
	matches := func(want, got string) bool { return want == "" || want == got }
	return (matches(s.UID, pod.UID) || s.UID == pod.RuntimeUID) && matches(s.Namespace, pod.Namespace) && matches(s.Name, pod.Name)
}
