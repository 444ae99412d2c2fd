// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/meshcni/meshcni/examples/e2e/chart"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// chartDirectory is the chart that is installed.
const chartDirectory = "../charts/meshcni"

func render(t *testing.T, values chart.Values) chart.Rendering {
	t.Helper()
	c, err := chart.Load(chartDirectory)
	if err != nil {
		t.Fatal(err)
	}
	rendering, err := c.Render(chart.Release{
		Name: scenario.ReleaseName, Namespace: scenario.SystemNamespace, KubeVersion: "v1.34.4",
	}, values)
	if err != nil {
		t.Fatal(err)
	}
	return rendering
}

// resource returns the API server's resource for an object's kind.
func resource(o chart.Object) schema.GroupVersionResource {
	version := schema.FromAPIVersionAndKind(o.APIVersion(), o.Kind()).GroupVersion()
	plural := strings.ToLower(o.Kind()) + "s"
	switch {
	case strings.HasSuffix(plural, "ys"):
		plural = strings.TrimSuffix(plural, "ys") + "ies"
	case strings.HasSuffix(plural, "ss"):
		plural = strings.TrimSuffix(plural, "s")
	case o.Kind() == "NetworkAttachmentDefinition":
		plural = "network-attachment-definitions"
	}
	return version.WithResource(plural)
}

// TestChartObjects checks that the API server accepts every object that the chart renders, for
// every platform and with all values set, and knows all their fields.
func TestChartObjects(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	s := suite.Begin(t)
	client, err := dynamic.NewForConfig(s.Cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	renderings := map[string]chart.Rendering{"everything": render(t, chart.Values{
		"tryKernel": true, "capabilities": []any{"DAC_OVERRIDE"}, "resourceQuotas": chart.Values{"enabled": true},
		"networkPolicy":   chart.Values{"enabled": true, "apiServer": []any{chart.Values{"cidr": "192.0.2.1/32", "port": 6443}}},
		"appArmorProfile": chart.Values{"type": "RuntimeDefault"}, "dashboard": chart.Values{"enabled": true}, "imagePullSecrets": []any{"a"},
	})}
	platforms, err := filepath.Glob(chartDirectory + "/platforms/*.yaml")
	if err != nil || len(platforms) == 0 {
		t.Fatalf("platforms: %v, %v", platforms, err)
	}
	for _, path := range platforms {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		renderings[name] = render(t, chart.Values{"platform": strings.Replace(name, "default", "", 1)})
	}
	// These kinds need an operator.
	foreign := []string{"NetworkAttachmentDefinition", "PodMonitor", "PrometheusRule", "SecurityContextConstraints"}
	for name, rendering := range renderings {
		for _, o := range slices.Concat(rendering.Objects, rendering.Hooks) {
			if slices.Contains(foreign, o.Kind()) {
				continue
			}
			s.Do("create "+o.Kind()+" "+o.Name()+" of "+name, func(ctx context.Context) error {
				options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
				_, err := client.Resource(resource(o)).Namespace(o.Namespace()).Create(ctx, &unstructured.Unstructured{Object: o.Content}, options)
				if apierrors.IsAlreadyExists(err) { // the API server checks the object first
					return nil
				}
				return err
			})
		}
	}
}
