// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/meshcni/meshcni/examples/e2e/internal/product"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestIstiosValues installs the chart with all of Istio's default values, and with those of a
// restricted cluster: a NetworkPolicy, and separate releases for the namespaced objects and those
// of the cluster. The daemons become ready without a restart, and pods are captured.
func TestIstiosValues(t *testing.T) {
	suite.Long(t)
	s := suite.BeginAsItIs(t)
	const clusterWide = "cluster-wide"
	s.Cleanup("uninstall what the cluster has", func(context.Context) error { return s.UninstallRelease(clusterWide) })
	s.Do("install what namespaces have", func(ctx context.Context) error { return s.Change(ctx, istioValues(t, "namespace")) })
	s.Do("install what the cluster has", func(ctx context.Context) error {
		return s.InstallRelease(ctx, clusterWide, istioValues(t, "cluster"))
	})
	s.AwaitDaemons()
	for _, daemon := range s.Daemons() {
		if restarts := daemon.Status.ContainerStatuses[0].RestartCount; restarts != 0 {
			t.Errorf("%s has been started again %d times", daemon.Name, restarts)
		}
	}
	s.Do("look whose the objects are", func(ctx context.Context) error {
		const owner = "meta.helm.sh/release-name"
		role, err := s.Cluster.Client.RbacV1().ClusterRoles().Get(ctx, "istio-cni", metav1.GetOptions{})
		if err != nil {
			return err
		}
		policy, err := s.Cluster.Client.NetworkingV1().NetworkPolicies(scenario.SystemNamespace).Get(ctx, "istio-cni", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if of := [2]string{role.Annotations[owner], policy.Annotations[owner]}; of != [2]string{clusterWide, scenario.ReleaseName} {
			t.Errorf("ClusterRole and NetworkPolicy are of the releases %q", of)
		}
		return nil
	})
	client := s.Deploy(scenario.Workload{Name: "client"})
	s.Expect(client, s.Deploy(scenario.Workload{Name: "server", Injected: true}), 8080, "inbound server")
}

// istioValues returns the defaults of Istio's chart, with the tests' image, a NetworkPolicy, and a
// scope of resources.
func istioValues(t *testing.T, scope string) scenario.Values {
	t.Helper()
	text, err := os.ReadFile("chart/testdata/istio-defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values scenario.Values
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	global, is := values["global"].(map[string]any)
	if !is {
		t.Fatalf("global is %v", values["global"])
	}
	global["networkPolicy"], global["resourceScope"] = scenario.Values{"enabled": true}, scope
	values["image"], values["pullPolicy"] = product.TestReference("install-cni", scenario.FirstVersion), "Never"
	values["settings"] = scenario.Values{} // this chart's own value; none are set
	return values
}
