// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/meshcni/meshcni/examples/e2e/chart"
)

func described(t *testing.T) []chart.Value {
	t.Helper()
	text, err := os.ReadFile(directory + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all, err := chart.ReadValues(string(text))
	if err != nil || len(all) < 40 {
		t.Fatalf("%d values: %v", len(all), err)
	}
	return all
}

// TestREADME generates the chart's README.
func TestREADME(t *testing.T) {
	t.Parallel()
	head, err := os.ReadFile("testdata/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	out.Write(head)
	heading := ""
	for _, v := range described(t) {
		if v.Heading != heading {
			heading = v.Heading
			fmt.Fprintf(&out, "\n### %s\n\n| value | default | meaning |\n|---|---|---|\n", heading)
		}
		fmt.Fprintf(&out, "| `%s` | `%s` | %s |\n", v.Path, v.Default, strings.ReplaceAll(v.Meaning, "|", "\\|"))
	}
	wantFile(t, directory+"/README.md", out.String())
}

// TestReadValuesWantsComments refuses a value without a comment.
func TestReadValuesWantsComments(t *testing.T) {
	t.Parallel()
	all, err := chart.ReadValues("# ## One\n\n# What a is.\na: 1\n\nb:\n  # What c is,\n  # and more.\n  c: [2]\n\n# d.\nd:\n  x: {z: 1}\n")
	want := []chart.Value{{"a", "1", "What a is.", "One"}, {"b.c", "[2]", "What c is, and more.", "One"}, {"d", `{"x":{"z":1}}`, "d.", "One"}}
	if diff := cmp.Diff(want, all); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"a: 1\n", "b:\n  c: 1\n", "# a\n\na: 1\n"} {
		if _, err := chart.ReadValues(text); err == nil || !strings.Contains(err.Error(), "no comment says") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestSchemaKnowsTheValues checks that the schema has the chart's values, Istio's, and no others.
func TestSchemaKnowsTheValues(t *testing.T) {
	t.Parallel()
	schema := readSchema(t)
	want := map[string]bool{"global": true, "cni": true}
	for _, v := range described(t) {
		want[strings.Split(v.Path, ".")[0]] = true
	}
	for _, row := range istioValues(t) {
		want[strings.Split(row.Value, ".")[0]] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(schema.Properties))); diff != "" {
		t.Errorf("(-values +schema):\n%s", diff)
	}
}

// TestSettings checks that each setting reaches the daemon: by a file of the ConfigMap if it may
// change while the daemon runs, else by its environment, so that a change rolls the DaemonSet.
func TestSettings(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(directory + "/settings.yaml")
	var rows []struct {
		Key, Name, Env string
		Live           bool
	}
	if err == nil {
		err = yaml.UnmarshalStrict(text, &rows)
	}
	if err != nil || len(rows) < 30 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	plain := render(t, "{}")
	for _, row := range rows {
		t.Run(row.Key, func(t *testing.T) {
			t.Parallel()
			value := sampleSetting(t, row.Key)
			r := render(t, at(t, "settings."+row.Key, value))
			if row.Live {
				want := fmt.Sprintf("\n  %s: ", row.Name)
				if !strings.Contains(find(t, r, "ConfigMap").Text, want) || find(t, r, "DaemonSet").Text != find(t, plain, "DaemonSet").Text {
					t.Errorf("%v isn't in the ConfigMap alone:\n%s", value, find(t, r, "ConfigMap").Text)
				}
				return
			}
			want := fmt.Sprintf("{name: %s, value: %q}", row.Env, chartText(value))
			if !strings.Contains(find(t, r, "DaemonSet").Text, want) || find(t, r, "ConfigMap").Text != find(t, plain, "ConfigMap").Text {
				t.Errorf("there is no %s, or it isn't in the environment alone:\n%s", want, find(t, r, "DaemonSet").Text)
			}
		})
	}
}

// sampleSetting returns a non-empty value that the schema allows for a setting.
func sampleSetting(t *testing.T, key string) any {
	t.Helper()
	schema := readSchema(t)
	property, ok := schema.Properties["settings"].Properties[key]
	if !ok {
		t.Fatalf("the schema has no %s", key)
	}
	for _, value := range property.Enum {
		if value != "" {
			return value
		}
	}
	if sample, ok := map[string]any{"boolean": true, "integer": 101, "array": []any{"a", "b"}}[fmt.Sprint(property.Type)]; ok {
		return sample
	}
	for _, text := range []string{"x", "/x/y", "10-x.conflist", "0640", "30s", "127.0.0.1:6060", "x-kubeconfig", "3/1m"} {
		if regexp.MustCompile(property.Pattern).MatchString(text) {
			return text
		}
	}
	t.Fatalf("no sample is a value of %s", key)
	return nil
}

type schemaNode struct {
	Type       any
	Enum       []any
	Pattern    string
	Properties map[string]schemaNode
}

func readSchema(t *testing.T) schemaNode {
	t.Helper()
	text, err := os.ReadFile(directory + "/values.schema.json")
	var schema schemaNode
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// chartText returns a value as the daemon gets it.
func chartText(value any) string {
	if list, ok := value.([]any); ok {
		words := make([]string, len(list))
		for i, one := range list {
			words[i] = fmt.Sprint(one)
		}
		return strings.Join(words, ",")
	}
	return fmt.Sprint(value)
}

func find(t *testing.T, r chart.Rendering, kind string) chart.Object {
	t.Helper()
	for _, o := range r.Objects {
		if o.Kind() == kind {
			return o
		}
	}
	t.Fatalf("there is no %s", kind)
	return chart.Object{}
}

// TestResources checks that the container's memory is limited and its CPU is not, unless the values
// differ: each quantity overrides the chart's own, also below cni, and null removes the limit.
func TestResources(t *testing.T) {
	t.Parallel()
	quantities := func(cpu, memory string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if text != "" {
				list[name] = resource.MustParse(text)
			}
		}
		return list
	}
	for text, want := range map[string]corev1.ResourceRequirements{
		"{}": {Requests: quantities("10m", "40Mi"), Limits: quantities("", "192Mi")},
		"resources: {requests: {cpu: 100m, memory: 100Mi}}": {
			Requests: quantities("100m", "100Mi"), Limits: quantities("", "192Mi"),
		},
		"cni: {resources: {limits: {memory: 1Gi}, requests: {memory: 512Mi}}}": {
			Requests: quantities("10m", "512Mi"), Limits: quantities("", "1Gi"),
		},
		"resources: {limits: {cpu: 200m}}":    {Requests: quantities("10m", "40Mi"), Limits: quantities("200m", "192Mi")},
		"resources: {limits: {memory: null}}": {Requests: quantities("10m", "40Mi"), Limits: quantities("", "")},
	} {
		var set appsv1.DaemonSet
		if err := yaml.UnmarshalStrict([]byte(find(t, render(t, text), "DaemonSet").Text), &set); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, set.Spec.Template.Spec.Containers[0].Resources); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}
