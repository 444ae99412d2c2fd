// SPDX-License-Identifier: Apache-2.0

package ambientpart

import (
	"fmt"

	"github.com/meshcni/meshcni/examples/internal/ambientnews"
)

// State is what the process of ambient mode has reported.
type State struct {
	// StandsBy reports that a newer process serves the node, that of another daemon. Everything else
	// is then zero.
	StandsBy bool
	// Node is the state of the node.
	Node ambientnews.Node
	// Pods counts the pods by how far they are; it has each of [Kinds].
	Pods map[Kind]int
	// Steps counts the pods that are not as wanted by the step that is taken, waited for or failed.
	// Its keys are steps of package ambient, or empty for pods that cannot be looked at.
	Steps map[string]int
}

// Kind says how far a pod is. Metrics use the texts.
type Kind string

// The kinds.
const (
	// Enrolled: the pod is captured, and the proxy serves it.
	Enrolled Kind = "enrolled"
	// Pending: the pod is captured, and no proxy serves it, so that its connections are refused.
	Pending Kind = "pending"
	// Enrolling: the pod is on its way into the mesh, and not captured yet.
	Enrolling Kind = "enrolling"
	// Leaving: the pod is on its way out of the mesh.
	Leaving Kind = "leaving"
	// Failed: a step has failed, and is repeated; or the pod is captured, and the proxy does not serve
	// one of its families.
	Failed Kind = "failed"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Enrolled, Pending, Enrolling, Leaving, Failed} }

// kindOf returns how far a pod is.
func kindOf(p ambientnews.Pod) Kind {
	switch {
	case p.Error != "":
		return Failed
	case !p.Wanted:
		return Leaving
	case p.Step == "":
		return Enrolled
	case p.Rules == "planned" && p.Proxy != "serves":
		return Pending
	}
	return Enrolling
}

// state is what a process has reported.
type state struct {
	standsBy bool
	began    bool // node is reported: the process serves its sockets
	node     ambientnews.Node
	pods     map[string]ambientnews.Pod // by UID
}

func newState() *state { return &state{pods: map[string]ambientnews.Pod{}} }

// takePod takes over a report of a pod, and reports whether a step has failed that had not failed
// before. The agent repeats steps that fail, with the same or another error.
func (s *state) takePod(p ambientnews.Pod) (failed bool) {
	before := s.pods[p.UID]
	s.pods[p.UID] = p
	if p.Left() {
		delete(s.pods, p.UID)
	}
	return p.Error != "" && (before.Error == "" || before.Step != p.Step)
}

func (s *state) summary() *State {
	if s.standsBy {
		return &State{StandsBy: true}
	}
	all := &State{Node: s.node, Pods: map[Kind]int{}, Steps: map[string]int{}}
	for _, kind := range Kinds() {
		all.Pods[kind] = 0
	}
	for _, p := range s.pods {
		kind := kindOf(p)
		all.Pods[kind]++
		if p.Step != "" {
			all.Steps[p.Step]++
		}
	}
	return all
}

// proxyReason returns why no proxy is connected; empty if one is. Where the node's namespace
// captures the pods, it is why they cannot be captured.
func (s *state) proxyReason(socket string) string {
	switch {
	case s.standsBy:
		return "a newer node-ambient serves the node, and knows the proxy"
	case s.node.OnNode && s.node.Host != "":
		return s.node.Host
	case s.node.Proxies > 0:
		return ""
	case s.node.OnNode:
		return "no pod of the proxy is ready on this node with its listeners, and connections of captured pods are refused: " +
			"see whether the proxy (ztunnel) runs here"
	}
	reason := fmt.Sprintf("no proxy is connected to %s: see whether its pod (ztunnel) runs on this node and mounts that directory", socket)
	if s.node.Lost != "" {
		reason += "; the last connection: " + s.node.Lost
	}
	return reason
}
