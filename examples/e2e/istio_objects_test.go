// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/meshcni/meshcni/examples/e2e/chart"
	"github.com/meshcni/meshcni/examples/e2e/internal/product"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// TestIstiosObjects creates the objects of Istio's chart with only the image replaced. The daemons
// are ready, pods are captured, and an older pod is repaired in place. A right that Istio's role
// lacks is a condition. With that right, deleting the DaemonSet removes the plugin from the nodes.
func TestIstiosObjects(t *testing.T) {
	suite.Long(t)
	s := suite.Begin(t)
	s.Do("uninstall", func(context.Context) error { return s.Uninstall() })
	early := withValidators("early", meshValidator("istio-validation", nobody, "-timeout=4s"))
	s.Start(early)
	awaitNotCaptured(s, early.Name)

	all, added := istioObjects(t, "istio-cni.yaml", "istio/install-cni:latest"), objectsOf(t, rightToAsk(t))
	s.Cleanup("delete Istio's objects", func(ctx context.Context) error { return deleteObjects(ctx, s, slices.Concat(added, all)) })
	createObjects(s, all)
	for _, node := range s.Cluster.Nodes() {
		daemon := s.Daemon(node)
		if restarts := daemon.Status.ContainerStatuses[0].RestartCount; restarts != 0 {
			t.Errorf("%s has been started again %d times", daemon.Name, restarts)
		}
		s.Await("the conditions of "+daemon.Name, func(ctx context.Context) (bool, error) {
			parts, err := readyParts(ctx, s, daemon)
			reason, is := parts["repair"]
			return is && reason == "" && strings.Contains(parts["daemonset"], "may not get the "), err
		})
	}
	client := s.Deploy(scenario.Workload{Name: "client"})
	before := s.Deploy(scenario.Workload{Name: "before", Injected: true})
	s.Expect(client, before, 8080, "inbound before")
	awaitEvent(s, early.Name, "RepairBrokenPod")
	s.Expect(client, s.AwaitPod(early), 8080, "inbound early")

	createObjects(s, added)
	s.Do("delete the DaemonSet first, and wait", func(ctx context.Context) error {
		foreground := metav1.DeletePropagationForeground
		sets := s.Cluster.Client.AppsV1().DaemonSets(scenario.SystemNamespace)
		return sets.Delete(ctx, "istio-cni-node", metav1.DeleteOptions{PropagationPolicy: &foreground})
	})
	s.Await("the end of the daemons", func(ctx context.Context) (bool, error) {
		_, err := s.Cluster.Client.AppsV1().DaemonSets(scenario.SystemNamespace).Get(ctx, "istio-cni-node", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	s.Do("delete the rest", func(ctx context.Context) error { return deleteObjects(ctx, s, slices.Concat(added, all)) })
	expectGone(t, s, client, before)
}

// rightToAsk returns the Role that the manual adds to Istio's objects.
func rightToAsk(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Istio's DaemonSet with this image\n")
	_, block, _ := strings.Cut(section, "\n```yaml\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("the manual has no Role")
	}
	return block
}

// istioObjects returns those of Istio's chart in a file, with the product's image instead.
func istioObjects(t *testing.T, file, image string) []chart.Object {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	image = "image: " + image
	if strings.Count(string(text), image) != 1 {
		t.Fatal("there is not one image")
	}
	return objectsOf(t, strings.Replace(string(text), image, "image: "+product.TestReference("install-cni", scenario.FirstVersion), 1))
}

func objectsOf(t *testing.T, text string) []chart.Object {
	t.Helper()
	var all []chart.Object
	for document := range strings.SplitSeq(text, "\n---\n") {
		o := chart.Object{Text: document}
		if err := yaml.UnmarshalStrict([]byte(document), &o.Content); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		all = append(all, o)
	}
	return all
}

func createObjects(s *scenario.Scenario, all []chart.Object) {
	for _, o := range all {
		s.Do("create "+o.Kind()+" "+o.Name(), func(ctx context.Context) error {
			objects, err := dynamic.NewForConfig(s.Cluster.Config())
			if err != nil {
				return err
			}
			_, err = objects.Resource(resource(o)).Namespace(o.Namespace()).
				Create(ctx, &unstructured.Unstructured{Object: o.Content}, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			return err
		})
	}
}

// deleteObjects deletes existing objects, last first.
func deleteObjects(ctx context.Context, s *scenario.Scenario, all []chart.Object) error {
	objects, err := dynamic.NewForConfig(s.Cluster.Config())
	if err != nil {
		return err
	}
	for _, o := range slices.Backward(all) {
		err := objects.Resource(resource(o)).Namespace(o.Namespace()).Delete(ctx, o.Name(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s %s: %w", o.Kind(), o.Name(), err)
		}
	}
	return nil
}

func readyParts(ctx context.Context, s *scenario.Scenario, daemon *corev1.Pod) (map[string]string, error) {
	text, err := s.Cluster.Client.CoreV1().Pods(daemon.Namespace).
		ProxyGet("http", daemon.Name, "8000", "/readyz", map[string]string{"verbose": "true"}).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Parts []struct{ Part, Reason string }
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	parts := map[string]string{}
	for _, part := range answer.Parts {
		parts[part.Part] = part.Reason
	}
	return parts, nil
}
