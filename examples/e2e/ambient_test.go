// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestAmbientEnrolment labels a namespace while its pods talk, and takes the label away again. The
// pods are captured, and are not captured any more, and no request fails: neither on new
// connections nor on one that was open all the time.
func TestAmbientEnrolment(t *testing.T) {
	a := beginAmbient(t)
	server := a.Pod(scenario.Workload{Name: "server", Node: a.Bridge.Name})
	client := a.Pod(scenario.Workload{Name: "client", Node: a.PointToPoint.Name})
	load := a.load(server)
	a.awaitRequests(load)
	for _, pod := range []*corev1.Pod{server, client} {
		if rules := a.Rules(pod); rules != "" {
			t.Errorf("%s has rules before its namespace has the label:\n%s", pod.Name, rules)
		}
	}

	a.label(true)
	a.awaitEnrolled(true, server, client, load)
	a.expectCaptured(client, server)
	a.awaitRequests(load)
	a.Expect(client, server, 8080)

	a.label(false)
	a.awaitEnrolled(false, server, client, load)
	a.expectNotCaptured(client, server)
	a.awaitRequests(load)
	a.Expect(client, server, 8080)
	a.expectNoFailures(load, allConnections)
}

// TestAmbientNewPods starts pods in a namespace with the label: they are captured before their
// first container starts, which therefore needs no probe to wait for that. A pod that says none is
// left alone.
func TestAmbientNewPods(t *testing.T) {
	suite.Long(t)
	a := beginAmbient(t)
	a.label(true)
	server := a.Pod(scenario.Workload{Name: "server", Node: a.Bridge.Name})
	a.awaitEnrolled(true, server)
	said := a.Job(scenario.Workload{Name: "first", Node: a.PointToPoint.Name, Arguments: []string{"accepts", closedPort(server)}})
	if said != "accepted\n" {
		t.Errorf("the first connection of a container passes the proxy by: %q", said)
	}
	apart := a.Pod(scenario.Workload{Name: "apart", Change: func(template *corev1.PodTemplateSpec) {
		template.Labels[dataplaneMode] = "none"
	}})
	if rules := a.Rules(apart); rules != "" {
		t.Errorf("a pod that is excluded has rules:\n%s", rules)
	}
	a.Expect(apart, server, 8080)
}

// TestAmbientWaitsForProxy starts a pod before the node's proxy. The pod waits, its event says for
// what, and it starts once the proxy is there. Pods outside the mesh and the proxy itself start
// meanwhile.
func TestAmbientWaitsForProxy(t *testing.T) {
	suite.Long(t)
	a := &ambientScenario{suite.BeginWith(t, ambientValues()), t}
	a.label(true)
	waiting := scenario.Workload{Name: "waiting", Node: a.Bridge.Name}
	a.Start(waiting)
	a.awaitSandboxFailure(waiting.Name, "ztunnel")
	a.Pod(scenario.Workload{Name: "apart", Node: a.Bridge.Name, Change: func(template *corev1.PodTemplateSpec) {
		template.Labels[dataplaneMode] = "none"
	}})
	a.startProxies()
	pod := a.AwaitPod(waiting)
	a.awaitEnrolled(true, pod)
	a.expectCaptured(a.Pod(scenario.Workload{Name: "client"}), pod)
}

// TestAmbientBesideSidecars has pods of both kinds in a namespace with the label. A pod with a
// sidecar keeps it and is not enrolled.
func TestAmbientBesideSidecars(t *testing.T) {
	suite.Long(t)
	a := beginAmbient(t)
	a.label(true)
	enrolled := a.Pod(scenario.Workload{Name: "enrolled", Node: a.Bridge.Name})
	sidecar := a.Pod(scenario.Workload{Name: "sidecar", Injected: true, Node: a.PointToPoint.Name})
	a.awaitEnrolled(true, enrolled)
	a.Expect(enrolled, sidecar, 8080, "inbound sidecar")
	a.Expect(sidecar, enrolled, 8080, "outbound sidecar")
	a.Do("look at the pod with the sidecar", func(ctx context.Context) error {
		now, err := a.get(ctx, sidecar)
		if err == nil && now.Annotations[redirection] != "" {
			t.Errorf("it is enrolled, too: %v", now.Annotations)
		}
		return err
	})
}

// TestAmbientProxyReplaced rolls the proxies out anew, as an upgrade of ztunnel does, while pods
// talk. No new connection fails.
func TestAmbientProxyReplaced(t *testing.T) {
	suite.Long(t)
	a, server, load := beginUnderLoad(t)
	a.restart("ztunnel")
	a.awaitRequests(load)
	a.expectCaptured(load, server)
	a.expectNoFailures(load, newConnections)
}

// TestAmbientDaemonReplaced restarts the daemons while pods talk, and starts pods meanwhile. No
// request fails, on whichever connection, and each new pod is captured.
func TestAmbientDaemonReplaced(t *testing.T) {
	suite.Long(t)
	a, _, load := beginUnderLoad(t)
	meanwhile := scenario.Workload{Name: "meanwhile", Node: a.Bridge.Name}
	old := a.Daemon(a.Bridge)
	a.Do("delete the daemon of "+a.Bridge.Name, func(ctx context.Context) error { return a.deletePod(ctx, old) })
	a.Start(meanwhile)
	a.RestartDaemons()
	pod := a.AwaitPod(meanwhile)
	a.awaitEnrolled(true, pod)
	a.expectCaptured(load, pod)
	a.awaitRequests(load)
	a.expectNoFailures(load, allConnections)
}

// TestAmbientUninstall uninstalls the product while pods of the mesh talk. They are out of it then:
// without rules and annotation, and no request has failed.
func TestAmbientUninstall(t *testing.T) {
	suite.Long(t)
	a, server, load := beginUnderLoad(t)
	a.Do("uninstall", func(context.Context) error { return a.UninstallRelease(scenario.ReleaseName) })
	expectNodesAsBefore(t, a.Scenario)
	a.awaitEnrolled(false, server, load)
	a.awaitRequests(load)
	a.expectNoFailures(load, newConnections)
}
