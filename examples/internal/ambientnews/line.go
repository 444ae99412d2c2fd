// SPDX-License-Identifier: Apache-2.0

package ambientnews

import "time"

// Line is one line. Exactly one field is set.
type Line struct {
	// Pod is a pod whose state has changed.
	Pod *Pod `json:"pod,omitempty"`
	// Node is the state of the node as a whole, when the program listens and whenever it has changed.
	Node *Node `json:"node,omitempty"`
	// Request is a request of a CNI plugin that was answered.
	Request *Request `json:"request,omitempty"`
	// Count is something that has happened, for metrics.
	Count *Count `json:"count,omitempty"`
	// StandsBy reports that a newer process serves the node. Everything that was reported before is
	// over. With the next Node the program serves again.
	StandsBy bool `json:"standsBy,omitempty"`
}

// Pod is how far the agent is with a pod.
type Pod struct {
	UID string `json:"uid"`
	// Namespace and Name are empty until they are known.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Wanted reports whether the pod is to be in the mesh.
	Wanted bool `json:"wanted"`
	// Rules are the rules that the pod's namespace has, Proxy is how far the proxy is with the pod,
	// and Status is the annotation that was asked for last, all in the words of package ambient.
	Rules  string `json:"rules,omitempty"`
	Proxy  string `json:"proxy,omitempty"`
	Status string `json:"status,omitempty"`
	// Step is what the agent does, waits for or failed to do; empty if the pod is as wanted.
	Step string `json:"step,omitempty"`
	// Error is the last failure; empty if there is none since the last success.
	Error string `json:"error,omitempty"`
	// Since is when Step and Error became what they are.
	Since time.Time `json:"since"`
}

// Left reports whether the pod is out of the mesh, so that nothing more is told of it.
func (p Pod) Left() bool { return !p.Wanted && p.Step == "" && p.Error == "" }

// Node is the state of the node.
type Node struct {
	// Complete reports whether the agent has been told of all pods of the node.
	Complete bool `json:"complete"`
	// Feed is why the connection to the source of pods failed last; empty while there is one.
	Feed string `json:"feed,omitempty"`
	// OnNode reports whether the node's namespace captures the pods.
	OnNode bool `json:"onNode,omitempty"`
	// Proxies is how many proxies are connected: two while one replaces the other. With OnNode no
	// proxy connects, and it is 1 while the node's proxy has its listeners.
	Proxies int `json:"proxies"`
	// Lost is why the last connection of a proxy ended; empty if none has ended.
	Lost string `json:"lost,omitempty"`
	// Host is why the rules of the host are not as they should be, or with OnNode those of the
	// proxy's namespace, or why a proxy cannot be used; empty if all is as it should be.
	Host string `json:"host,omitempty"`
}

// Count is something that has happened.
type Count struct {
	// What has happened: a kind of Count of package ambient/agent, or an answer of a proxy,
	// Ack or Nack.
	What string `json:"what"`
	// Of says what it has happened to, in the words of the kind. For an answer of a proxy it is the
	// kind of the request.
	Of string `json:"of"`
	// Times is how often.
	Times int `json:"times"`
	// Seconds is how long it took, for an enrolment.
	Seconds float64 `json:"seconds,omitempty"`
}

// The kinds of [Count] that are answers of a proxy: it has done what it was told, or has refused.
const (
	Ack  = "ack"
	Nack = "nack"
)

// Request is a request of a plugin.
type Request struct {
	// Status is the status of the answer (RFC 9110).
	Status int `json:"status"`
	// Captured reports whether the pod was enrolled.
	Captured bool `json:"captured,omitempty"`
	// Seconds is how long the request took.
	Seconds float64 `json:"seconds"`
}
