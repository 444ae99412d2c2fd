// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestAmbientReboot cuts a node's power and boots it. Its pods wait for the proxy, and are in the
// mesh again with the addresses that they have now: probes reach them, and connections without a
// tunnel do not.
func TestAmbientReboot(t *testing.T) {
	suite.Long(t)
	a := &ambientScenario{suite.BeginWith(t, ambientValues()), t}
	node := a.AddNode(a.Node(cluster.BridgeNetwork))
	a.AwaitNode(node, true)
	a.startProxies(strict)
	a.label(true)
	client := a.Pod(scenario.Workload{Name: "client", Node: a.Bridge.Name, Change: func(template *corev1.PodTemplateSpec) {
		template.Labels[dataplaneMode] = "none"
	}})
	w := probed("server", node)
	before := a.Pod(w)
	a.awaitEnrolled(true, before)
	a.expectRefused(client, before)

	node.Kill()
	a.AwaitNode(node, false)
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	a.AwaitNode(node, true)
	var after *corev1.Pod
	a.Await("the pod of after the boot", func(ctx context.Context) (done bool, err error) {
		after, err = a.get(ctx, before)
		return err == nil && scenario.Ready(after) && after.Status.PodIP != before.Status.PodIP, err
	})
	a.awaitServed(node, w.Name)
	a.awaitEnrolled(true, after)
	a.expectProbed(after, 0, 1, 2)
	a.expectRefused(client, after)
	a.awaitProxies(scenario.SystemNamespace)
}

// TestAmbientIPv6Only has a node that has IPv6 only, also for its pods. They are enrolled, probes
// reach them, and connections from and to a node with both families go through the tunnel.
func TestAmbientIPv6Only(t *testing.T) {
	suite.Long(t)
	values := ambientValues()
	host, port := suite.Cluster.IPv6Server()
	values["env"] = scenario.Values{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
	a := &ambientScenario{suite.BeginWith(t, values), t}
	node := a.AddNode(a.Node(cluster.IPv6Network))
	a.AwaitNode(node, true)
	a.startProxies(strict)
	a.label(true)
	outside := a.Pod(scenario.Workload{Name: "outside", Node: a.Bridge.Name, Change: func(template *corev1.PodTemplateSpec) {
		template.Labels[dataplaneMode] = "none"
	}})
	there := a.Pod(probed("there", node))
	here := a.Pod(probed("here", a.PointToPoint))
	if addresses := there.Status.PodIPs; len(addresses) != 1 {
		t.Fatalf("the pod has the addresses %v", addresses)
	}
	a.awaitEnrolled(true, there, here)
	a.expectProbed(there, 0, 1, 2)
	a.expectRefused(outside, there)
	a.tunnel(there, here)
	a.Expect(here, there, 8080)
	a.ExpectURL(there, scenario.URLs(here, 8080)[1], here.Name)
}
