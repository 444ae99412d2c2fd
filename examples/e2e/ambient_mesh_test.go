// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/meshcni/meshcni/examples/e2e/chart"
	"github.com/meshcni/meshcni/examples/e2e/internal/product"
	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

const (
	dataplaneMode = "istio.io/dataplane-mode"
	redirection   = "ambient.istio.io/redirection"
)

// ambientValues turns ambient mode on in the chart.
func ambientValues() scenario.Values {
	return scenario.Values{"ambient": scenario.Values{"enabled": true}}
}

// ambientScenario is a scenario with ambient mode.
type ambientScenario struct {
	*scenario.Scenario
	t *testing.T
}

// beginAmbient begins a scenario with ambient mode, and with a proxy on each node.
func beginAmbient(t *testing.T) *ambientScenario {
	t.Helper()
	a := &ambientScenario{suite.BeginWith(t, ambientValues()), t}
	a.startProxies()
	return a
}

// beginUnderLoad begins a scenario with ambient mode in which pods of the mesh talk.
func beginUnderLoad(t *testing.T) (a *ambientScenario, server, load *corev1.Pod) {
	t.Helper()
	a = beginAmbient(t)
	a.label(true)
	server = a.Pod(scenario.Workload{Name: "server", Node: a.Bridge.Name})
	load = a.load(server)
	a.awaitEnrolled(true, server, load)
	a.awaitRequests(load)
	return a, server, load
}

// startProxies creates the objects of Istio's ztunnel chart with the stand-in's image, and flags of
// the stand-in, and waits until a proxy is ready on each node.
func (a *ambientScenario) startProxies(flags ...string) {
	a.t.Helper()
	a.createProxies(scenario.SystemNamespace, "ztunnel", append(flags, "proxy", "ztunnel")...)
}

// createProxies creates the objects of Istio's ztunnel chart in a namespace that exists, with
// another image and other arguments, and waits until a proxy is ready on each node.
func (a *ambientScenario) createProxies(namespace, image string, arguments ...string) {
	a.t.Helper()
	text, err := os.ReadFile("testdata/ztunnel.yaml")
	if err != nil {
		a.t.Fatal(err)
	}
	const theirs, given = "image: istio/ztunnel:latest", "      - args:\n        - proxy\n        - ztunnel\n"
	if strings.Count(string(text), theirs) != 1 || strings.Count(string(text), given) != 1 {
		a.t.Fatal("there is not one image with arguments")
	}
	ours := "      - args:\n"
	for _, argument := range arguments {
		ours += "        - " + argument + "\n"
	}
	in := "namespace: " + namespace
	changed := strings.NewReplacer(theirs, "image: "+product.TestReference(image, "e2e"), given, ours, "namespace: istio-system", in).Replace(string(text))
	// istiod makes the ConfigMap that is mounted.
	certificate := `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio-ca-root-cert", "namespace": "` + namespace + `"}}`
	all := append(objectsOf(a.t, certificate), objectsOf(a.t, changed)...)
	a.Cleanup("remove the proxies", func(ctx context.Context) error { return a.removeProxies(ctx, namespace, all) })
	createObjects(a.Scenario, all)
	a.awaitProxies(namespace)
}

// removeProxies deletes the proxies' objects, and waits for the end of their pods.
func (a *ambientScenario) removeProxies(ctx context.Context, namespace string, all []chart.Object) error {
	if err := deleteObjects(ctx, a.Scenario, all); err != nil {
		return err
	}
	for {
		pods, err := a.Cluster.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=ztunnel"})
		if err != nil || len(pods.Items) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d proxies are still there: %w", len(pods.Items), ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// awaitProxies waits until each node has a ready proxy of the newest generation, and no other.
func (a *ambientScenario) awaitProxies(namespace string) {
	a.t.Helper()
	a.Await("a proxy on each node", func(ctx context.Context) (bool, error) {
		set, err := a.Cluster.Client.AppsV1().DaemonSets(namespace).Get(ctx, "ztunnel", metav1.GetOptions{})
		return err == nil && rolledOut(set, int32(len(a.Cluster.Nodes()))), err
	})
}

// rolledOut reports whether each node has a ready pod of a DaemonSet's newest generation.
func rolledOut(set *appsv1.DaemonSet, nodes int32) bool {
	status := set.Status
	return status.ObservedGeneration == set.Generation && status.UpdatedNumberScheduled == nodes && status.NumberReady == nodes &&
		status.NumberUnavailable == 0
}

// restart rolls the proxies' DaemonSet out anew, as kubectl rollout restart does.
func (a *ambientScenario) restart(name string) {
	a.t.Helper()
	a.Do("restart "+name, func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`,
			time.Now().Format(time.RFC3339Nano))
		_, err := a.Cluster.Client.AppsV1().DaemonSets(scenario.SystemNamespace).
			Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	a.awaitProxies(scenario.SystemNamespace)
}

// label puts the namespace's pods into ambient mode, or takes them out.
func (a *ambientScenario) label(on bool) {
	a.t.Helper()
	value := "null"
	if on {
		value = `"ambient"`
	}
	a.Do("label the namespace", func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, dataplaneMode, value)
		_, err := a.Cluster.Client.CoreV1().Namespaces().Patch(ctx, a.Namespace, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

func (a *ambientScenario) get(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return a.Cluster.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
}

func (a *ambientScenario) deletePod(ctx context.Context, pod *corev1.Pod) error {
	return a.Cluster.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
}

// awaitEnrolled waits until the pods' annotations say that they are enrolled, or that they are not,
// and checks that their rules agree.
func (a *ambientScenario) awaitEnrolled(enrolled bool, pods ...*corev1.Pod) {
	a.t.Helper()
	for _, pod := range pods {
		a.Await(fmt.Sprintf("the annotation of %s: %t", pod.Name, enrolled), func(ctx context.Context) (bool, error) {
			now, err := a.get(ctx, pod)
			return err == nil && (now.Annotations[redirection] == "enabled") == enrolled, err
		})
		if rules := a.Rules(pod); (rules != "") != enrolled {
			a.t.Errorf("the annotation of %s is right (%t), and its rules are:\n%s", pod.Name, enrolled, rules)
		}
	}
}

// closedPort returns an address of a pod at which no program listens.
func closedPort(pod *corev1.Pod) string { return net.JoinHostPort(pod.Status.PodIP, "9") }

// accepts reports whether a connection from one pod to a port of another one on which nothing
// listens is accepted: then a proxy has accepted it.
func (a *ambientScenario) accepts(from, to *corev1.Pod) bool {
	a.t.Helper()
	said, err := a.Exec(from, "application", "/workload", "accepts", closedPort(to))
	if err != nil {
		a.t.Fatal(err)
	}
	return said == "accepted\n"
}

// expectCaptured checks that connections from one pod to another pass a proxy.
func (a *ambientScenario) expectCaptured(from, to *corev1.Pod) {
	a.t.Helper()
	if !a.accepts(from, to) {
		a.t.Errorf("no proxy is between %s and %s", from.Name, to.Name)
	}
}

// expectNotCaptured checks that connections from one pod to another pass no proxy.
func (a *ambientScenario) expectNotCaptured(from, to *corev1.Pod) {
	a.t.Helper()
	if a.accepts(from, to) {
		a.t.Errorf("a proxy is between %s and %s", from.Name, to.Name)
	}
}

// load starts a pod on the second node that queries another pod all the time.
func (a *ambientScenario) load(server *corev1.Pod) *corev1.Pod {
	a.t.Helper()
	url := scenario.URLs(server, 8080)[0]
	load := a.Pod(scenario.Workload{Name: "load", Node: a.PointToPoint.Name, Arguments: []string{"load", url}})
	// The proxies, which end later, would wait for its connection.
	a.Cleanup("end the load", func(ctx context.Context) error { return a.deletePod(ctx, load) })
	return load
}

// progress is a line of a load.
type progress struct {
	// Asked counts the requests on new connections, and those on a kept one.
	Asked int
	// Kept counts how often the kept connection had to be opened.
	Kept int
}

// loaded returns the last line of a load, and its failures.
func (a *ambientScenario) loaded(load *corev1.Pod) (last progress, failures []string) {
	a.t.Helper()
	for line := range strings.Lines(a.Logs(load)) {
		if json.Unmarshal([]byte(line), &last) != nil {
			failures = append(failures, strings.TrimSpace(line))
		}
	}
	return last, failures
}

// awaitRequests waits until a load has made a hundred further requests.
func (a *ambientScenario) awaitRequests(load *corev1.Pod) {
	a.t.Helper()
	before, _ := a.loaded(load)
	a.Await("further requests", func(context.Context) (bool, error) {
		now, _ := a.loaded(load)
		return now.Asked >= before.Asked+100, nil
	})
}

// allConnections and newConnections are those on which no request of a load may fail.
const (
	allConnections = true
	newConnections = false
)

// expectNoFailures checks that a load has had no failures on new connections, and with all also
// none on the kept one, which was never opened again.
func (a *ambientScenario) expectNoFailures(load *corev1.Pod, all bool) {
	a.t.Helper()
	last, failures := a.loaded(load)
	for _, failure := range failures {
		if all || !strings.HasPrefix(failure, "failed on a kept connection: ") {
			a.t.Errorf("after %d requests: %s", last.Asked, failure)
		}
	}
	if all && last.Kept != 1 {
		a.t.Errorf("the connection that was to be kept has been opened %d times", last.Kept)
	}
}

// awaitSandboxFailure waits until a pod's event says that it could not start, with a word.
func (a *ambientScenario) awaitSandboxFailure(pod, word string) {
	a.t.Helper()
	said := ""
	a.Await("an event that says why "+pod+" waits", func(ctx context.Context) (bool, error) {
		events, err := a.Cluster.Client.CoreV1().Events(a.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "reason=FailedCreatePodSandBox,involvedObject.name=" + pod,
		})
		if err != nil || len(events.Items) == 0 {
			return false, err
		}
		said = events.Items[0].Message
		return true, nil
	})
	a.t.Log(said)
	if !strings.Contains(said, word) {
		a.t.Errorf("the event lacks %q", word)
	}
}
