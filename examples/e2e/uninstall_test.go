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

// TestUninstall: behind the chart's uninstall the nodes' configurations are what they were to the byte, pods start without the plugin, and those
// that it has captured go on and can be deleted. Installed again, it captures again.
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

// expectGone wants nodes without the product. The client and a pod that was captured are from before.
func expectGone(t *testing.T, s *scenario.Scenario, client, before *corev1.Pod) {
	t.Helper()
	expectNodesAsBefore(t, s)
	s.Expect(client, before, 8080, "inbound before")
	after := s.Deploy(scenario.Workload{Name: "after", Injected: true})
	s.Expect(client, after, 8080)
	s.Delete(before)
	s.Delete(after)
}

// expectNodesAsBefore wants the nodes' configurations as they were before the installation, and no credentials there.
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

// TestPlainUninstall: the manifests for those who install without Helm, deleted as kubectl delete -f does it: one after the other, in the order
// of the file, without waiting for what they own. The service account and its roles are gone before a daemon is told to end.
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
