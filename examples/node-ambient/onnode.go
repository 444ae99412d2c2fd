// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/nodemode"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
)

// openOnNode returns what opens the agent that captures pods in the node's namespace.
func (s surroundings) openOnNode(drain drainTime) opener {
	return func(_ context.Context, p part) (formAgent, error) {
		node, err := nodemode.New(nodemode.Options{
			Dataplane: s.planes.chosen, Sets: s.planes.chosen, TakeOver: s.planes.foreign, Finder: s.finder, State: s.nodeState(),
			Owner: ambientconf.NodeOwner, Policy: s.policy, Vocabulary: ambient.Istio(), Numbers: ambientconf.NodeNumbers(), Host: s.host,
			Way: s.settings.ProxyWay(), DNS: s.settings.DNS, Closed: s.settings.Closed, DrainTimeout: drain,
			Feed: p.feed, Annotator: p.annotator, Observe: p.observe, Retiring: p.retiring, InPod: p.inPod, Count: s.report.count,
			Held:           func(uid string) bool { return p.held != nil && p.held(uid) != "" },
			WithoutNotices: s.withoutNotices, WithoutProbes: s.withoutProbes, ObserveHost: p.observeHost,
			ObserveProxy: func(listens bool) {
				if !p.retiring {
					s.report.listens(listens)
				}
				s.log.Info("the node's proxy", "listens", listens)
			},
		})
		if err != nil {
			return formAgent{}, err
		}
		return formAgent{plugin: node, operators: onNode{node}, run: node.Run, alone: node.Alone}, nil
	}
}

// withoutProbes is told why no packet shows whether connections of pods are marked.
func (s surroundings) withoutProbes(err error) {
	s.log.Warn("pods are called enabled by rules and sets alone: no packet shows whether connections get the mesh's mark", "error", err)
}

// onNode answers operators. No proxy connects to its agent.
type onNode struct{ *nodemode.Agent }

// Status returns the agent's status without the host's error in the place of the proxy's: operators
// get that error as the host's.
func (n onNode) Status(uids ...string) agent.Status {
	status := n.Agent.Status(uids...)
	status.Proxy.Err = nil
	return status
}
