// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/meshcni/meshcni/examples/e2e/internal/scenario"
)

// validated returns a pod whose validator reports that it is not captured, with existing owners.
func validated(name string, owners ...metav1.OwnerReference) scenario.Workload {
	return scenario.Workload{Name: name, Injected: true, Change: func(template *corev1.PodTemplateSpec) {
		template.OwnerReferences = owners
		validator := template.Spec.Containers[0]
		// The validator ends with exit code 1.
		validator.Name, validator.Args, validator.ReadinessProbe = "istio-validation", []string{"fail"}, nil
		template.Spec.InitContainers = append(template.Spec.InitContainers, validator)
	}}
}

// repairing installs the product with settings, for this scenario.
func repairing(s *scenario.Scenario, inPlace bool, settings scenario.Values) {
	settings["excludeNamespaces"], settings["repairInitContainerExitCode"] = []any{"kube-system"}, 1
	s.Do("install the product with repair", func(ctx context.Context) error {
		return s.Install(ctx, scenario.Values{"repairInPlace": inPlace, "settings": settings})
	})
}

// awaitEvent waits for the product's event on a pod, and returns its message.
func awaitEvent(s *scenario.Scenario, pod, reason string) (message string) {
	s.Await(reason+" of "+pod, func(ctx context.Context) (bool, error) {
		events, err := s.Cluster.Client.CoreV1().Events(s.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "source=cni-repair,involvedObject.name=" + pod})
		if err != nil {
			return false, err
		}
		for _, e := range events.Items {
			if e.Reason == reason && e.InvolvedObject.UID != "" && e.Type == corev1.EventTypeWarning {
				message = e.Message
				return true, nil
			}
		}
		return false, nil
	})
	return message
}

// awaitMetrics waits until the daemons' metrics have these samples.
func awaitMetrics(s *scenario.Scenario, samples ...string) {
	s.Await("metrics", func(ctx context.Context) (bool, error) {
		var all strings.Builder
		for _, node := range s.Cluster.Nodes() {
			daemon := s.Daemon(node)
			text, err := s.Cluster.Client.CoreV1().Pods(daemon.Namespace).ProxyGet("http", daemon.Name, "15014", "/metrics", nil).DoRaw(ctx)
			if err != nil {
				return false, nil //nolint:nilerr // the pod may still be starting
			}
			all.Write(text)
		}
		for _, sample := range samples {
			if !strings.Contains(all.String(), "\n"+sample+"\n") {
				return false, nil
			}
		}
		return true, nil
	})
}

// TestRepairModes checks that pods whose validator fails are labelled, deleted, evicted or
// reported, depending on the kind of their owners.
func TestRepairModes(t *testing.T) {
	suite.Long(t)
	s := suite.BeginAsItIs(t)
	repairing(s, false, scenario.Values{
		"repairPolicy": "owners=ServiceAccount do=evict; owners=ConfigMap do=delete; owners=none do=evict,label; do=report",
		"repairWrites": "100/1s",
		"repairResync": "1s",
	})
	account, configuration, namespace := owner(t, s)
	s.Start(validated("labelled"))
	s.Start(validated("evicted", account))
	s.Start(validated("deleted", configuration))
	s.Start(validated("reported", namespace))
	for pod, reason := range map[string]string{
		"labelled": "LabelBrokenPod", "evicted": "EvictBrokenPod", "deleted": "DeleteBrokenPod", "reported": "BrokenPod",
	} {
		awaitEvent(s, pod, reason)
	}
	s.Await("what is left", func(ctx context.Context) (bool, error) {
		pods, err := s.Cluster.Client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		left := map[string]string{}
		for _, pod := range pods.Items {
			left[pod.Name] = pod.Labels["cni.istio.io/uninitialized"]
		}
		return len(left) == 2 && left["labelled"] == "true" && left["reported"] == "", nil
	})
	awaitMetrics(s, `istio_cni_repair_pods_repaired_total{result="success",type="label"} 1`,
		`istio_cni_repair_pods_repaired_total{result="success",type="evict"} 1`,
		`istio_cni_repair_pods_repaired_total{result="success",type="delete"} 1`)
}

// owner returns existing objects of the scenario's namespace as owners.
func owner(t *testing.T, s *scenario.Scenario) (account, configuration, namespace metav1.OwnerReference) {
	t.Helper()
	s.Do("look for owners", func(ctx context.Context) error {
		core := s.Cluster.Client.CoreV1()
		a, err := core.ServiceAccounts(s.Namespace).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return err
		}
		c, err := core.ConfigMaps(s.Namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		n, err := core.Namespaces().Get(ctx, s.Namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		reference := func(kind string, o metav1.ObjectMeta) metav1.OwnerReference {
			return metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: o.Name, UID: o.UID, Controller: new(true)}
		}
		account, configuration, namespace = reference("ServiceAccount", a.ObjectMeta), reference("ConfigMap", c.ObjectMeta), reference("Namespace", n.ObjectMeta)
		return nil
	})
	return account, configuration, namespace
}

// TestRepairInPlace flushes a running pod's rules. They are restored, with an event and a metric.
func TestRepairInPlace(t *testing.T) {
	suite.Long(t)
	s := suite.BeginAsItIs(t)
	repairing(s, true, scenario.Values{"repairResync": "1s"})
	pod := s.Pod(scenario.Workload{Name: "pod", Injected: true})
	before := s.Rules(pod)
	if before == "" {
		t.Fatal("it has no rules at first")
	}
	s.FlushRules(pod)
	awaitEvent(s, pod.Name, "RepairBrokenPod")
	s.Await("rules", func(context.Context) (bool, error) { return s.Rules(pod) != "", nil })
	awaitMetrics(s, `istio_cni_repair_pods_repaired_total{result="success",type="repair"} 1`)
}

// slow is a connection to an API server that delays each request by a second.
type slow struct{ http.RoundTripper }

// RoundTrip waits, then sends the request.
func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(time.Second):
		return s.RoundTripper.RoundTrip(r)
	}
}

// TestRepairClient checks that the controller's client distinguishes failed preconditions, missing
// rights and a slow API server.
func TestRepairClient(t *testing.T) {
	suite.Long(t)
	t.Parallel()
	s := suite.Begin(t)
	pod := s.Pod(scenario.Workload{Name: "pod"})
	of := repair.Target{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), ResourceVersion: pod.ResourceVersion}
	stale, another := of, of
	stale.ResourceVersion, another.UID = "1", "00000000-0000-0000-0000-000000000000"
	client := func(change func(*rest.Config)) *controller.Client {
		config := s.Cluster.Config()
		change(config)
		c, err := controller.NewClient(config)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	admin := client(func(*rest.Config) {})
	for _, mode := range []repair.Mode{repair.ModeLabel, repair.ModeDelete, repair.ModeEvict} {
		for name, target := range map[string]repair.Target{"of another version": stale, "of another pod": another} {
			err := admin.Do(t.Context(), repair.Action{Do: mode, Target: target, Label: repair.IstioLabel()})
			// The UID is immutable.
			if !apierrors.IsConflict(err) && !(mode == repair.ModeLabel && apierrors.IsInvalid(err)) {
				t.Errorf("%s %s: %v", mode, name, err)
			}
		}
		nobody := client(func(c *rest.Config) { c.Impersonate.UserName = "nobody" })
		if err := nobody.Do(t.Context(), repair.Action{Do: mode, Target: of, Label: repair.IstioLabel()}); !apierrors.IsForbidden(err) {
			t.Errorf("%s by nobody: %v", mode, err)
		}
	}
	hurried, end := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer end()
	sluggish := client(func(c *rest.Config) { c.Wrap(func(inner http.RoundTripper) http.RoundTripper { return slow{inner} }) })
	if err := sluggish.Do(hurried, repair.Action{Do: repair.ModeDelete, Target: of}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("in a hurry: %v", err)
	}
	event := controller.Event{About: of, Reason: "BrokenPod", Message: "a test", Node: pod.Spec.NodeName}
	for range 2 { // the second already exists
		if err := admin.CreateEvent(t.Context(), event); err != nil {
			t.Error(err)
		}
	}
	awaitEvent(s, pod.Name, "BrokenPod")
	if got, err := admin.Pod(t.Context(), pod.Namespace, pod.Name); err != nil || got.UID != of.UID || got.Phase != repair.PhaseRunning || len(got.IPs) == 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
