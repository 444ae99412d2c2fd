// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/e2e/chart"
)

// TestGrantable checks that every permission in the chart appears in some rendering, and no other
// does.
func TestGrantable(t *testing.T) {
	t.Parallel()
	var want []string
	for _, values := range []string{
		"tryKernel: true", "repairInPlace: true", "ambient: {enabled: true, mode: node}", "capabilities: [CHOWN, DAC_OVERRIDE, FOWNER]", "securityContextConstraints: {enabled: true}",
		`settings: {repairPolicy: "do=evict,delete,label", readinessTaint: a/b}`,
	} {
		var got []string
		for _, p := range render(t, values).Permissions() {
			if slices.Contains(got, p.String()) {
				t.Errorf("%s: twice %s", values, p)
			}
			got = append(got, p.String())
		}
		want = append(want, got...)
	}
	slices.Sort(want)
	all, err := load(t).Grantable()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, len(all))
	for i, p := range all {
		got[i] = p.String()
	}
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
		t.Errorf("(-rendered +in the chart):\n%s", diff)
	}
}

// TestGrantableOfAnyBranch reads a chart with branches that no value reaches.
func TestGrantableOfAnyBranch(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	for name, text := range map[string]string{
		"Chart.yaml":         "apiVersion: v2\nname: a\nversion: 1.0.0\n",
		"values.schema.json": `{"properties": {"capabilities": {"items": {"enum": ["CHOWN"]}}}}`,
		"templates/role.yaml": `
kind: Role
metadata:
  name: {{ include "meshcni.name" . }}-more
rules:
{{- if and .Values.a (not .Values.a) }}
  - {apiGroups: [""], resources: [secrets], verbs: [get{{ with .Values.b }}, list{{ else }}, watch{{ end }}]}
{{- end }}
---
{{- $name := "x" }}
kind: DaemonSet
metadata: {name: {{ $name }}-node}
spec:
  template:
    spec:
      containers:
        {{- range .Values.c }}
        - securityContext: {capabilities: {add: [BPF]}}
        {{- end }}
`,
	} {
		write(t, directory, name, text)
	}
	c, err := chart.Load(directory)
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.Grantable()
	var got []string
	for _, p := range all {
		got = append(got, strings.TrimPrefix(p.String(), "DaemonSet istio-cni-node: "))
	}
	const role = "Role istio-cni-more: "
	want := []string{"capability BPF", "capability CHOWN", role + "get secrets", role + "list secrets", role + "watch secrets"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func write(t *testing.T, directory, name, text string) {
	t.Helper()
	path := filepath.Join(directory, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
