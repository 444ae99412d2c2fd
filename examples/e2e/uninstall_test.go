// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/meshcni/meshcni/examples/e2e/chart"
	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
	"github.com/meshcni/meshcni/examples/e2e/internal/product"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestUninstall runs the chart's uninstall. After it, the nodes' configurations are byte for byte
// what they were, pods start without the plugin, and captured pods keep running and can be deleted.
// A new installation captures again.
func TestUninstall(t *testing.T) {
	s := suite.Begin(t)
	client := s.Deploy(scenario.Workload{Name: "client"})
	before := s.Deploy(scenario.Workload{Name: "before", Injected: true})
	s.Expect(client, before, 8080, "inbound before")

	if err := s.Uninstall(); err != nil {
		t.Fatal(err)
	}
	expectGone(t, s, client, before)

	s.Do("install again", s.InstallDefault)
	again := s.Deploy(scenario.Workload{Name: "again", Injected: true})
	s.Expect(client, again, 8080, "inbound again")
}

// expectGone checks that the product has left the nodes. The client and a captured pod are from
// before the uninstall.
func expectGone(t *testing.T, s *scenario.Scenario, client, before *corev1.Pod) {
	t.Helper()
	expectNodesAsBefore(t, s)
	s.Expect(client, before, 8080, "inbound before")
	after := s.Deploy(scenario.Workload{Name: "after", Injected: true})
	s.Expect(client, after, 8080)
	s.Delete(before)
	s.Delete(after)
}

// expectNodesAsBefore checks that the nodes' configurations are as before the installation, without
// credentials.
func expectNodesAsBefore(t *testing.T, s *scenario.Scenario) {
	t.Helper()
	for network, node := range map[cluster.Network]*cluster.Node{cluster.BridgeNetwork: s.Bridge, cluster.PointToPointNetwork: s.PointToPoint} {
		want := map[string]string{cluster.FileName: node.NetworkConfiguration(network)}
		if diff := cmp.Diff(want, s.NetworkFiles(node)); diff != "" {
			t.Errorf("CNI configurations of %s (-before +after):\n%s", node.Name, diff)
		}
		if _, err := os.Stat(node.Path("/var/run/istio-cni/istio-cni-kubeconfig")); err == nil {
			t.Errorf("the plugin's credentials are still on %s", node.Name)
		}
	}
}

// TestPlainUninstall deletes the manifests for installations without Helm as kubectl delete -f
// does: in the file's order, without waiting for dependent objects. The service account and its
// roles are gone before a daemon is stopped.
func TestPlainUninstall(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	if err := s.Uninstall(); err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(s.Cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	manifest := render(t, chart.Values{
		"image": product.TestReference("install-cni", scenario.FirstVersion), "pullPolicy": "Never",
		"settings": chart.Values{"excludeNamespaces": []any{"kube-system"}},
	}).Objects
	for _, o := range manifest {
		s.Do("create "+o.Kind()+" "+o.Name(), func(ctx context.Context) error {
			of := objects.Resource(resource(o)).Namespace(o.Namespace())
			_, err := of.Create(ctx, &unstructured.Unstructured{Object: o.Content}, metav1.CreateOptions{})
			return err
		})
	}
	daemons := s.Daemons()
	client := s.Deploy(scenario.Workload{Name: "client"})
	before := s.Deploy(scenario.Workload{Name: "before", Injected: true})
	s.Expect(client, before, 8080, "inbound before")

	background := metav1.DeletePropagationBackground
	for _, o := range manifest {
		s.Do("delete "+o.Kind()+" "+o.Name(), func(ctx context.Context) error {
			return objects.Resource(resource(o)).Namespace(o.Namespace()).Delete(ctx, o.Name(), metav1.DeleteOptions{PropagationPolicy: &background})
		})
	}
	s.AwaitEndOf(daemons...)
	expectGone(t, s, client, before)
}
