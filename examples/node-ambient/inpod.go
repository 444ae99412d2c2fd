// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception/journal"
)

// openInPod returns what opens the agent that captures pods in their own namespaces.
func (s surroundings) openInPod(drain drainTime) opener {
	return func(ctx context.Context, p part) (formAgent, error) {
		node, err := agent.New(ctx, agent.Options{
			Socket: s.proxy, Dataplane: s.planes.chosen, Sets: s.planes.chosen, TakeOver: s.planes.foreign, Finder: s.finder,
			Journal: journal.Journal{Directory: s.journal}, Owner: ambientconf.Owner, Policy: s.policy, Vocabulary: ambient.Istio(),
			Defaults: ambient.DefaultOverrides(s.settings.DNS), Numbers: ambient.IstioNumbers(), Host: s.host, Branches: !s.settings.NoBranches,
			Closed: s.settings.Closed, CaptureExisting: s.settings.CaptureExisting, DrainTimeout: drain,
			Feed: p.feed, Annotator: p.annotator, Observe: p.observe, Held: p.held, Retiring: p.retiring, Count: s.report.count,
			WithoutNotices: s.withoutNotices, ObserveHost: p.observeHost,
			Proxy: zds.Options{Observe: func(e zds.Event) {
				if !p.retiring {
					s.report.proxy(e)
				}
				s.log.Log(ctx, levelOf(e.Err), "proxy", "connection", e.Connection, "request", e.Request.Kind.String(),
					"pod", e.Request.Workload.UID, "error", e.Err)
			}},
		})
		if err != nil {
			return formAgent{}, err
		}
		return formAgent{plugin: node, operators: node, inside: node, run: node.Run}, nil
	}
}
