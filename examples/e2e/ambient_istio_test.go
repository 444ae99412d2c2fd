// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestIstiosAmbientObjects creates the objects of Istio's charts for ambient mode with only the
// images replaced. New pods are enrolled, and leave when they lose the label. Pods that run already
// are not found here: Istio's DaemonSet has no mount for libcni's cache, and the kubelets of these
// tests give pods no cgroups of their own, as real ones do.
func TestIstiosAmbientObjects(t *testing.T) {
	suite.Long(t)
	a := &ambientScenario{suite.Begin(t), t}
	a.Do("uninstall", func(context.Context) error { return a.Uninstall() })
	all := istioObjects(t, "istio-cni-ambient.yaml", "istio/install-cni:latest-distroless")
	a.Cleanup("delete Istio's objects", func(ctx context.Context) error { return deleteObjects(ctx, a.Scenario, all) })
	createObjects(a.Scenario, all)
	a.startProxies()
	a.label(true)
	client := a.Pod(scenario.Workload{Name: "client", Node: a.Bridge.Name})
	server := a.Pod(scenario.Workload{Name: "server", Node: a.PointToPoint.Name})
	a.awaitEnrolled(true, client, server)
	a.expectCaptured(client, server)
	a.label(false)
	a.awaitEnrolled(false, client, server)
	a.expectNotCaptured(client, server)
}
