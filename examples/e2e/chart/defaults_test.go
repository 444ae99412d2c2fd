// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/meshcni/meshcni/examples/e2e/chart"
)

func istioDefaults(t *testing.T) chart.Values {
	t.Helper()
	text, err := os.ReadFile("testdata/istio-defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return values(t, string(text))
}

// TestIstiosDefaults checks that Istio's default values, at the top and below cni, mean the same as
// this chart's corresponding values.
func TestIstiosDefaults(t *testing.T) {
	t.Parallel()
	want := render(t, `
repairInPlace: true
resources: {requests: {cpu: 100m, memory: 100Mi}}
terminationGracePeriodSeconds: 30
tolerations:
  - {effect: NoSchedule, operator: Exists}
  - {key: CriticalAddonsOnly, operator: Exists}
  - {effect: NoExecute, operator: Exists}
settings:
  excludeNamespaces: [kube-system]
  chainedCniPlugin: true
  istioOwnedCniConfig: false
  logOutputLevel: info
  logAsJson: false
  nativeNftables: false
  repairEnabled: true
  repairDeletePods: false
  repairLabelPods: false
  repairInitContainerName: istio-validation
  repairBrokenPodLabelKey: cni.istio.io/uninitialized
  repairBrokenPodLabelValue: "true"
  ambientEnabled: false
  ambientDnsCapture: true
ambient:
  enablementSelectors:
    - podSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}
    - podSelector: {matchExpressions: [{key: istio.io/dataplane-mode, operator: NotIn, values: [none]}]}
      namespaceSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}
`)
	below := istioDefaults(t)
	global := below["global"]
	delete(below, "global")
	for name, given := range map[string]chart.Values{"at the top": istioDefaults(t), "below cni": {"cni": map[string]any(below), "global": global}} {
		got, err := load(t).Render(standard(), given)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want.Manifest(""), got.Manifest("")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if notes := strings.Count(got.Notes, "does nothing here"); notes != 0 {
			t.Errorf("%s: %d notes:\n%s", name, notes, got.Notes)
		}
	}
}

// otherSamples returns non-default values of Istio's chart for which [another] has no sample.
func otherSamples() map[string]any {
	return map[string]any{
		"pullPolicy": "Always", "logging.level": "debug", "cniConfFileName": "10-x.conflist", "istioOwnedCNIConfigFileName": "01-x.conflist",
		"cniBinDir": "/x", "cniConfDir": "/x", "cniNetnsDir": "/x", "provider": "multus", "repair.brokenPodLabelKey": "example.com/x",
		"excludeNamespaces": []any{"x"}, "tolerations": []any{}, "affinity": map[string]any{"nodeAffinity": map[string]any{}},
		"global.imagePullPolicy": "Always", "global.logging.level": "debug", "global.resourceScope": "namespace", "global.imagePullSecrets": []any{"x"},
		"ambient.enablementSelectors": []any{map[string]any{"podSelector": map[string]any{}}},
		"env":                         map[string]any{"X": "y"}, "resources.requests.cpu": "1m", "resources.requests.memory": "1Mi",
		"updateStrategy.type": "OnDelete",
	}
}

// another returns a different value of the same type.
func another(path string, value any) any {
	if sample, is := otherSamples()[path]; is {
		return sample
	}
	switch v := value.(type) {
	case bool:
		return !v
	case float64:
		return v + 1
	case map[string]any:
		return map[string]any{"type": "Localhost"}
	default:
		return "x"
	}
}

// leaves collects the values below a path that have no values of their own.
func leaves(path string, of, found map[string]any) {
	for name, value := range of {
		name = strings.TrimPrefix(path+"."+name, ".")
		if inner, is := value.(map[string]any); is && len(inner) > 0 {
			leaves(name, inner, found)
			continue
		}
		found[name] = value
	}
}

// TestEachOfIstiosValues checks that no value of Istio's chart is ignored: a non-default value
// changes what is installed, is refused by name, or is named in the notes.
func TestEachOfIstiosValues(t *testing.T) {
	t.Parallel()
	// All charts of Istio share these, and they have no effect here: the images differ, and
	// resources are never empty.
	shared := []string{
		"global.hub", "global.tag", "global.variant", "global.defaultResources.requests.cpu", "global.defaultResources.requests.memory",
	}
	// Values that take effect in either chart only with these.
	needed := map[string]string{"istioOwnedCNIConfigFileName": "istioOwnedCNIConfig", "resourceQuotas.pods": "resourceQuotas.enabled"}
	all := map[string]any{}
	leaves("", istioDefaults(t), all)
	for path, value := range all {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			before := istioDefaults(t)
			if need := needed[path]; need != "" {
				put(t, before, need, true)
			}
			plain, err := load(t).Render(standard(), before)
			if err != nil {
				t.Fatal(err)
			}
			after := deepCopy(t, before)
			put(t, after, path, another(path, value))
			got, err := load(t).Render(standard(), after)
			changes := err == nil && got.Manifest("") != plain.Manifest("")
			told := err != nil && strings.Contains(err.Error(), path+": ") || strings.Contains(got.Notes, "The value "+path+" does nothing here")
			if changes == told && !slices.Contains(shared, path) {
				t.Errorf("%s=%v: it changes something: %v, is refused or noted: %v; %v", path, another(path, value), changes, told, err)
			}
		})
	}
}

func put(t *testing.T, in map[string]any, path string, value any) {
	t.Helper()
	words := strings.Split(path, ".")
	for _, word := range words[:len(words)-1] {
		inner, is := in[word].(map[string]any)
		if !is {
			t.Fatalf("there is no object %s for %s", word, path)
		}
		in = inner
	}
	in[words[len(words)-1]] = value
}

func deepCopy(t *testing.T, of chart.Values) chart.Values {
	t.Helper()
	text, err := yaml.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	return values(t, string(text))
}

// TestResourceScope checks that two releases with different scopes together make what one with both
// makes, and no object twice.
func TestResourceScope(t *testing.T) {
	t.Parallel()
	features := strings.ReplaceAll(everything, "networkPolicy:", "global: {}\nnetworkPolicy:")
	objects := func(scope string) map[string]string {
		found := map[string]string{}
		r := render(t, strings.Replace(features, "global: {}", "global: {resourceScope: "+scope+"}", 1))
		for _, o := range append(r.Objects, r.Hooks...) {
			found[o.Kind()+" "+o.Namespace()+"/"+o.Name()] = o.Text
			if inNamespace := o.Namespace() != ""; scope != "all" && inNamespace != (scope == "namespace") {
				t.Errorf("%s: there is %s %s/%s", scope, o.Kind(), o.Namespace(), o.Name())
			}
		}
		return found
	}
	all, cluster, namespace := objects("all"), objects("cluster"), objects("namespace")
	if len(cluster)+len(namespace) != len(all) {
		t.Errorf("%d and %d objects of %d", len(cluster), len(namespace), len(all))
	}
	maps.Copy(namespace, cluster)
	if diff := cmp.Diff(all, namespace); diff != "" {
		t.Errorf("(-one +two):\n%s", diff)
	}
}

// TestGlobalNetworkPolicy checks that the global value yields to this chart's own, even if that is
// false.
func TestGlobalNetworkPolicy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"{}": false,
		"global: {networkPolicy: {enabled: true}}":                                    true,
		"global: {networkPolicy: {enabled: true}}\nnetworkPolicy: {enabled: false}":   false,
		"global: {networkPolicy: {enabled: false}}\nnetworkPolicy: {enabled: true}":   true,
		"global: {networkPolicy: {enabled: true}}\nnetworkPolicy: {apiServer: []}":    true,
		"global: {logAsJson: true, networkPolicy: null}\nsettings: {logAsJson: true}": false,
	} {
		if got := strings.Contains(render(t, text).Manifest(""), "kind: NetworkPolicy"); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestLogLevels checks Istio's two log levels: the chart's own applies, and the global one is its
// default.
func TestLogLevels(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`logging: {level: ""}` + "\nglobal: {logging: {level: info}}":                                   "info",
		"logging: {level: debug}\nglobal: {logging: {level: info}}":                                     "debug",
		`logging: {level: ""}` + "\nglobal: {logging: {level: info}}\nsettings: {logOutputLevel: warn}": "warn",
		`logging: {level: ""}` + "\n" + `global: {logging: {level: ""}}`:                                "",
	} {
		config := find(t, render(t, text), "ConfigMap")
		data, _ := config.Content["data"].(map[string]any)
		if got, _ := data["log_output_level"].(string); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
