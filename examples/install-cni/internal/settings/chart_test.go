// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// chart is the Helm chart, which gives the daemon its settings.
const chart = "../../../charts/meshcni"

// ofTheChart returns the settings that the chart sets itself: mounts, ports and names that have to
// match.
func ofTheChart() []string {
	return []string{
		"mounted-cni-net-dir", "mounted-cni-bin-dir", "mounted-cni-cache-dir", "cni-bin-source-dir", "cni-agent-run-dir", DirectorySetting,
		"service-account-dir", "pod-namespace", "agent-name", "pod-name", "node-name", "node-watcher", "node-ambient", "health-address", "monitoring-port",
		"cni-net-dir", "secondary-cni-bin-dir", "log-uds-address", "mounted-proc-dir", "mounted-netns-dirs",
		"installation-config-map",
	}
}

// forTheChart returns the others.
func forTheChart() []Setting {
	return slices.DeleteFunc(All(), func(s Setting) bool { return s.Inert || slices.Contains(ofTheChart(), s.Name) })
}

// chartTable returns the chart's table of settings.
func chartTable() string {
	var out strings.Builder
	out.WriteString("# SPDX-License-Identifier: Apache-2.0\n#\n# The settings that the chart's value settings may have, for the templates. " +
		"It is made from the table in\n# examples/install-cni/internal/settings, as values.schema.json is.\n")
	for _, s := range forTheChart() {
		fmt.Fprintf(&out, "- {key: %s, name: %s, env: %s, live: %v}\n", s.Key(), s.Name, s.Env(), s.Live)
	}
	return out.String()
}

// object is an object of JSON.
type object = map[string]any

// chartSchema returns the JSON schema of the chart's values: its own, the settings, and those that
// it shares with Istio's chart.
func chartSchema(t *testing.T) string {
	t.Helper()
	own, all := readObject(t, "testdata/chart.schema.json"), object{}
	text, err := jsonSchema()
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	properties := member(t, own, "properties")
	settings := member(t, properties, "settings", "properties")
	for _, s := range forTheChart() {
		settings[s.Key()] = member(t, all, "properties", s.Key())
	}
	for _, row := range readIstioValues(t) {
		name, rest, nested := strings.Cut(row.Value, ".")
		switch {
		case name == "global":
		case nested && properties[name] == nil:
			properties[name] = object{"description": "of Istio's chart", "type": "object"}
		case nested:
		case strings.HasPrefix(row.Becomes, "settings.") && row.When == "":
			properties[name] = settings[strings.TrimPrefix(row.Becomes, "settings.")]
		case properties[name] == nil:
			properties[name] = object{"description": "of Istio's chart"}
		}
		if nested && name != "global" && strings.HasPrefix(row.Becomes, "settings.") {
			nest(properties, name, rest, settings[strings.TrimPrefix(row.Becomes, "settings.")])
		}
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(own); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// nest allows a member in a value of Istio's chart, unless the chart's own schema says what the
// member may be.
func nest(properties object, name, member string, schema any) {
	value, _ := properties[name].(object)
	members, _ := value["properties"].(object)
	if members == nil {
		members = object{}
		value["properties"] = members
	}
	if members[member] == nil {
		members[member] = schema
	}
}

// istioValue is a row of the chart's table of Istio's values.
type istioValue struct {
	Value   string
	Becomes string
	When    string
}

func readIstioValues(t *testing.T) []istioValue {
	t.Helper()
	text, err := os.ReadFile(chart + "/istio-values.yaml")
	var rows []istioValue
	if err == nil {
		err = yaml.Unmarshal(text, &rows)
	}
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	return rows
}

func readObject(t *testing.T, path string) object {
	t.Helper()
	text, err := os.ReadFile(path)
	var o object
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return o
}

func member(t *testing.T, o object, path ...string) object {
	t.Helper()
	for _, name := range path {
		inner, ok := o[name].(object)
		if !ok {
			t.Fatalf("there is no object %s", strings.Join(path, "."))
		}
		o = inner
	}
	return o
}

// TestChartHasSettingsThatAre checks that the settings that the chart sets exist.
func TestChartHasSettingsThatAre(t *testing.T) {
	t.Parallel()
	for _, name := range ofTheChart() {
		if !slices.ContainsFunc(All(), func(s Setting) bool { return s.Name == name && !s.Inert }) {
			t.Errorf("%s is no setting", name)
		}
	}
}
