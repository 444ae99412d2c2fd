// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/meshcni/meshcni/examples/e2e/chart"
)

type istioValue struct {
	Value, Becomes, With, When, Ignored, Refused string
	As                                           any
	Unless                                       []any
}

func istioValues(t *testing.T) []istioValue {
	t.Helper()
	text, err := os.ReadFile(directory + "/istio-values.yaml")
	var rows []istioValue
	if err == nil {
		err = yaml.UnmarshalStrict(text, &rows)
	}
	if err != nil || len(rows) < 20 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	return rows
}

// at returns a values file with one value.
func at(t *testing.T, path string, value any) string {
	t.Helper()
	words := strings.Split(path, ".")
	for _, word := range slices.Backward(words) {
		value = map[string]any{word: value}
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block returns the same as [at], in lines to which more can be appended.
func block(t *testing.T, path string, value any) string {
	t.Helper()
	text, err := yaml.JSONToYAML([]byte(at(t, path, value)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// samples returns non-default values, by this chart's paths.
func samples() map[string]any {
	return map[string]any{
		"settings.excludeNamespaces": []any{"a", "b"}, "settings.cniConfName": "10-x.conflist", "settings.chainedCniPlugin": false,
		"settings.istioOwnedCniConfig": true, "settings.istioOwnedCniConfigFilename": "01-x.conflist", "settings.logOutputLevel": "default:debug",
		"settings.nativeNftables": true, "settings.logAsJson": true, "updateStrategy.rollingUpdate.maxUnavailable": 3, "platform": "k3s",
		"pullPolicy": "Always", "imagePullSecrets": []any{"a"}, "repairInPlace": false, "settings.repairEnabled": false,
		"settings.repairDeletePods": true, "settings.repairLabelPods": true, "settings.repairBrokenPodLabelKey": "example.com/x",
		"settings.repairBrokenPodLabelValue": "x", "settings.repairInitContainerName": "x", "networkPolicy.enabled": true,
		"resourceScope": "namespace", "settings.ambientEnabled": true, "settings.ambientDnsCapture": false,
	}
}

// given returns a value of Istio's chart that becomes a sample.
func (row istioValue) given(sample any) any {
	if row.When != "" {
		return row.When
	}
	return sample
}

// TestIstioValues checks that each of Istio's values is what the table states: the same as one of
// this chart's, without effect, or an error.
func TestIstioValues(t *testing.T) {
	t.Parallel()
	plain := render(t, "{}")
	for _, row := range istioValues(t) {
		t.Run(row.Value, func(t *testing.T) {
			t.Parallel()
			if row.Becomes != "" {
				wantSame(t, row, plain)
			}
			switch {
			case row.Refused != "":
				if _, err := load(t).Render(standard(), values(t, at(t, row.Value, "x"))); err == nil || !strings.Contains(err.Error(), row.Refused) {
					t.Errorf("it is taken: %v", err)
				}
			case row.Becomes == "":
				if got := render(t, at(t, row.Value, "x")); got.Manifest("") != plain.Manifest("") || !strings.Contains(got.Notes, row.Ignored) {
					t.Errorf("it changes something, or isn't noted:\n%s", got.Notes)
				}
			}
			for _, harmless := range row.Unless {
				if got := render(t, at(t, row.Value, harmless)); got.Manifest("") != plain.Manifest("") || got.Notes != plain.Notes {
					t.Errorf("%v changes something, or is noted:\n%s", harmless, got.Notes)
				}
			}
		})
	}
}

// wantSame checks that one of Istio's values equals one of this chart's.
func wantSame(t *testing.T, row istioValue, plain chart.Rendering) {
	t.Helper()
	if row.Becomes == "settings.ambientEnablementSelector" {
		return // it is no text in the chart; see TestAmbientValues
	}
	sample, ok := samples()[row.Becomes]
	if row.When != "" && sample != row.As {
		t.Fatalf("%s: %v is no other value than the default", row.Becomes, row.As)
	}
	if !ok {
		t.Fatalf("there is no sample of %s", row.Becomes)
	}
	with := ""
	if row.With != "" {
		with = "\n" + row.With + ": true\n"
		if alone := render(t, at(t, row.Value, sample)); alone.Manifest("") != plain.Manifest("") {
			t.Errorf("it changes something without %s", row.With)
		}
	}
	want := render(t, block(t, row.Becomes, sample)+with)
	got := render(t, block(t, row.Value, row.given(sample))+with)
	if diff := cmp.Diff(want.Manifest(""), got.Manifest("")); diff != "" || want.Manifest("") == plain.Manifest("") {
		t.Errorf("%s isn't %s (-want +got):\n%s", row.Value, row.Becomes, diff)
	}
	if !strings.HasPrefix(row.Value, "global.") && got.Manifest("") != render(t, block(t, "cni."+row.Value, row.given(sample))+with).Manifest("") {
		t.Errorf("cni.%s isn't %s", row.Value, row.Value)
	}
}

// TestAmbientValues checks that ambient mode has the defaults of Istio's chart, that Istio's
// selectors become text that the daemon reads, and that the proxy's directory follows its socket.
func TestAmbientValues(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"ambient: {enabled: true}":                    {`{name: AMBIENT_DNS_CAPTURE, value: "true"}`},
		"ambient: {enabled: true, dnsCapture: false}": {`{name: AMBIENT_DNS_CAPTURE, value: "false"}`},
		"ambient: {enabled: true, enablementSelectors: [{podSelector: {matchLabels: {a: b}}}, {namespaceSelector: {}}]}": {
			`{name: AMBIENT_ENABLEMENT_SELECTOR, value: "[{\"podSelector\":{\"matchLabels\":{\"a\":\"b\"}}},{\"namespaceSelector\":{}}]"}`,
		},
		"profile: ambient\nsettings: {ztunnelUdsAddress: /run/proxy/agent.sock}": {
			`{name: ZTUNNEL_UDS_ADDRESS, value: "/run/proxy/agent.sock"}`, "{name: ztunnel, mountPath: /run/proxy}",
			"hostPath: {path: /run/proxy, type: DirectoryOrCreate}",
		},
	} {
		daemon := find(t, render(t, text), "DaemonSet").Text
		for _, one := range want {
			if !strings.Contains(daemon, one) {
				t.Errorf("%s: there is no %s in\n%s", text, one, daemon)
			}
		}
	}
	if daemon := find(t, render(t, "ambient: {enabled: true, enablementSelectors: []}"), "DaemonSet").Text; strings.Contains(daemon, "SELECTOR") {
		t.Errorf("no selectors aren't Istio's:\n%s", daemon)
	}
}

// TestAmbientMode checks that the values of the capture on the node become settings, which take
// precedence, and that the proxy gets no socket.
func TestAmbientMode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"ambient: {enabled: true, mode: node, way: vxlan}": {
			`{name: AMBIENT_MODE, value: "node"}`, `{name: AMBIENT_WAY, value: "vxlan"}`, `{name: AMBIENT_DNS_CAPTURE, value: "false"}`,
		},
		"profile: ambient\nambient: {mode: node, dnsCapture: true}": {`{name: AMBIENT_DNS_CAPTURE, value: "true"}`},
		"settings: {ambientEnabled: true, ambientMode: node}":       {`{name: AMBIENT_MODE, value: "node"}`},
		"ambient: {enabled: true, mode: in-pod, way: veth}\nsettings: {ambientMode: node, ambientWay: vxlan}": {
			`{name: AMBIENT_MODE, value: "node"}`, `{name: AMBIENT_WAY, value: "vxlan"}`,
		},
	} {
		r := render(t, text)
		daemon := find(t, r, "DaemonSet").Text
		for _, one := range want {
			if !strings.Contains(daemon, one) {
				t.Errorf("%s: there is no %s in\n%s", text, one, daemon)
			}
		}
		if !strings.Contains(daemon, "{name: ztunnel, mountPath: /var/run/ztunnel}") {
			t.Errorf("%s: there is no directory for the socket of the proxy that pods may move from:\n%s", text, daemon)
		}
	}
	for _, text := range []string{"ambient: {enabled: true, mode: in-pod}", "ambient: {enabled: true}\nsettings: {ambientMode: in-pod}"} {
		if daemon := find(t, render(t, text), "DaemonSet").Text; !strings.Contains(daemon, "{name: ztunnel, mountPath: /var/run/ztunnel}") {
			t.Errorf("%s: there is no directory for the proxy's socket:\n%s", text, daemon)
		}
	}
	if daemon := find(t, render(t, "ambient: {mode: node, way: vxlan}"), "DaemonSet").Text; strings.Contains(daemon, "AMBIENT") {
		t.Errorf("ambient mode is off, and set up:\n%s", daemon)
	}
}

// TestGlobalGivesWay checks that this chart's values override global ones, which belong to other
// charts too.
func TestGlobalGivesWay(t *testing.T) {
	t.Parallel()
	text := render(t, "global: {platform: microk8s, imagePullPolicy: Always, logging: {level: debug}}\nplatform: k3d\npullPolicy: Never\nlogging: {level: warn}").Manifest("")
	for _, want := range []string{"path: /var/lib/rancher/k3s/data/cni,", "imagePullPolicy: Never", "log_output_level: warn"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

// TestPlatformGivesWay checks that given values override a platform's.
func TestPlatformGivesWay(t *testing.T) {
	t.Parallel()
	text := render(t, "platform: openshift\ncniBinDir: /x\nprovider: default\nsettings: {chainedCniPlugin: true}\nsecurityContextConstraints: {enabled: false}").Manifest("")
	for _, want := range []string{"path: /x,", `name: CHAINED_CNI_PLUGIN, value: "true"`, "path: /etc/cni/multus/net.d,"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
	for _, unwanted := range []string{"NetworkAttachmentDefinition", "SecurityContextConstraints"} {
		if strings.Contains(text, unwanted) {
			t.Errorf("there is %s in\n%s", unwanted, text)
		}
	}
}

// TestPorting compares the table in docs/porting-from-istio.md.
func TestPorting(t *testing.T) {
	t.Parallel()
	const path, begin, end = "../../../docs/porting-from-istio.md", "<!-- made from examples/charts/meshcni/istio-values.yaml -->\n", "<!-- end -->\n"
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(file), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table", path)
	}
	var out strings.Builder
	out.WriteString("| Istio's value | here |\n|---|---|\n")
	for _, row := range istioValues(t) {
		what := fmt.Sprintf("`%s`", row.Becomes)
		if row.With != "" {
			what += fmt.Sprintf(", with `%s`", row.With)
		}
		if row.When != "" {
			what = fmt.Sprintf("`%s`: `%s=%v`; refused: %s", row.When, row.Becomes, row.As, row.Refused)
		} else if len(row.Unless) > 0 && row.Becomes != "" {
			what += "; empty: as if it weren't there"
		}
		if row.Ignored != "" {
			what = "does nothing: " + row.Ignored
		}
		if row.Refused != "" && row.When == "" {
			what = "refused: " + row.Refused
		}
		fmt.Fprintf(&out, "| `%s` | %s |\n", row.Value, what)
	}
	wantFile(t, path, before+begin+out.String()+end+after)
}
