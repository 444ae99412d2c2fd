// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

func TestInjectedPod(t *testing.T) {
	t.Parallel()
	pod, err := readPod("")
	if err != nil {
		t.Fatal(err)
	}
	if pod.Namespace != "shop" || pod.Name != "cart-6f9d4c7b8-x2lqv" || pod.UID != "2f1c3d9e-6d1b-4b7e-9a56-0d5b8f6f4a11" {
		t.Errorf("the pod is %s/%s with UID %s", pod.Namespace, pod.Name, pod.UID)
	}
	if pod.application() != "cart" || !pod.validated() || !slices.Equal(pod.ports, []interception.Port{8080}) {
		t.Errorf("application %q, validated %v, ports %v", pod.application(), pod.validated(), pod.ports)
	}
}

// TestAmbientPods has two pods to enrol by a label of their Kubernetes namespace, and one that opts
// out.
func TestAmbientPods(t *testing.T) {
	t.Parallel()
	pods, err := readAmbientPods()
	if err != nil || len(pods) != 3 {
		t.Fatalf("%d pods, %v, want 3", len(pods), err)
	}
	for i, name := range []string{orders, stock, audit} {
		pod := pods[i]
		namespace := ambient.Namespace{Name: pod.Namespace}
		before := ambient.Enrolled(ambient.Pod{Pod: pod.Pod}, namespace, ambient.IstioPolicy())
		namespace.Labels = map[string]string{modeLabel: modeAmbient}
		after := ambient.Enrolled(ambient.Pod{Pod: pod.Pod}, namespace, ambient.IstioPolicy())
		if pod.application() != name || before.Capture || after.Capture != (name != audit) {
			t.Errorf("%s: the container is %s, it is enrolled: %s, with the label: %s", pod.Name, pod.application(), before, after)
		}
	}
}

func TestPodIsCompleted(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"YAML": "# a comment\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {priority: 9007199254740993, containers: [{name: app}]}\n",
		"JSON": `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"priority": 9007199254740993, "containers": [{"name": "app"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod, err := parsePod([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			var served struct {
				Kind     string
				Metadata struct{ Name, Namespace, UID string }
				Spec     struct{ Priority json.Number }
			}
			if err := json.Unmarshal(pod.json, &served); err != nil {
				t.Fatal(err)
			}
			if served.Kind != "Pod" || served.Metadata.Namespace != "default" || served.Metadata.UID == "" || served.Metadata.UID != pod.UID {
				t.Errorf("%s is served, want a Pod with a namespace and a UID", pod.json)
			}
			if served.Spec.Priority != "9007199254740993" {
				t.Errorf("priority is %s: what isn't looked at has to stay as it is", served.Spec.Priority)
			}
			if len(pod.ports) != 1 || pod.ports[0] != standardPort {
				t.Errorf("ports are %v, want %d", pod.ports, standardPort)
			}
		})
	}
}

func TestPodIsRefused(t *testing.T) {
	t.Parallel()
	const containers = "\nspec: {containers: [{name: app}]}"
	for name, test := range map[string]struct{ text, want string }{
		"nothing":         {"", "it describes no pod"},
		"comments":        {"# nothing\n---\n", "it describes no pod"},
		"two documents":   {"kind: Pod\n---\nkind: Pod\n", "it holds 2 pods: give one of"},
		"inline document": {"kind: Pod\n--- {b: 2}\n", `line 2: it is not a Kubernetes object: it has no "kind"`},
		"neither":         {"a: [", "neither YAML nor JSON"},
		"a key twice":     {"kind: Pod\nkind: Pod\n", "unusable YAML"},
		"another kind":    {"apiVersion: apps/v1\nkind: Deployment\n", "only Deployment default/: kubectl get pod NAME -o yaml"},
		"a list":          {"apiVersion: v1\nkind: List\n", "kubectl get pod NAME -o yaml"},
		"no name":         {"apiVersion: v1\nkind: Pod" + containers, "metadata.name is missing"},
		"wrong type":      {"apiVersion: v1\nkind: Pod\nmetadata: {name: [a]}" + containers, "line 3: metadata: name: it is a list"},
		"host network":    {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {hostNetwork: true}", "hostNetwork"},
		"no containers":   {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}", "spec.containers is empty"},
		"no port": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: app, ports: [{containerPort: 65536}]}]}",
			"cannot unmarshal number 65536",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "pod.yaml")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := readPod(path)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error is %v, want one with %q and the path", err, test.want)
			}
		})
	}
}
