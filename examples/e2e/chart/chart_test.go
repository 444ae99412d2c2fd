// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"

	"github.com/meshcni/meshcni/examples/e2e/chart"
)

var update = flag.Bool("update", false, "rewrite what is made from the chart: manifests, its README, tables")

const directory = "../../charts/meshcni"

// standard returns the release that the documentation installs, in a cluster of today. The default
// of Helm's library is a version that the chart refuses.
func standard() chart.Release {
	return chart.Release{Name: "istio-cni", Namespace: "istio-system", KubeVersion: "v1.34.4"}
}

func load(t *testing.T) chart.Chart {
	t.Helper()
	c, err := chart.Load(directory)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func values(t *testing.T, text string) chart.Values {
	t.Helper()
	v, err := chart.ParseValues(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func render(t *testing.T, text string) chart.Rendering {
	t.Helper()
	r, err := load(t).Render(standard(), values(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantFile compares a file with the wanted text, or writes it.
func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("%s is stale (-file +now): run go test ./chart -update in examples/e2e, and read the difference:\n%s", path, diff)
	}
}

func platforms(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(directory + "/platforms/*.yaml")
	if err != nil || len(paths) < 9 {
		t.Fatalf("platforms: %v, %v", paths, err)
	}
	for i, path := range paths {
		paths[i] = strings.TrimSuffix(filepath.Base(path), ".yaml")
	}
	return paths
}

func forPlatform(name string) string {
	if name == "default" {
		return "{}"
	}
	return "platform: " + name
}

// everything are values with which the chart renders all that it can.
const everything = `
tryKernel: true
ambient: {enabled: true}
capabilities: [DAC_OVERRIDE]
revision: canary
provider: multus
imagePullSecrets: [a]
resourceQuotas: {enabled: true}
networkPolicy: {enabled: true, apiServer: [{cidr: 192.0.2.1/32, port: 6443}]}
podMonitor: {enabled: true, labels: {release: prometheus}, interval: 30s}
prometheusRule: {enabled: true, labels: {release: prometheus}}
dashboard: {enabled: true}
securityContextConstraints: {enabled: true}
seLinuxOptions: {type: spc_t}
appArmorProfile: {type: RuntimeDefault}
affinity: {nodeAffinity: {}}
nodeSelector: {a: b}
podLabels: {a: b}
podAnnotations: {a: b}
daemonSetLabels: {a: b}
serviceAccountAnnotations: {a: b}
env: {A: 1}
settings: {excludeNamespaces: [kube-system], failPolicy: open, logAsJson: true, kubernetesServicePort: 6443}
`

func TestLint(t *testing.T) {
	t.Parallel()
	all := []string{everything}
	for _, name := range platforms(t) {
		all = append(all, forPlatform(name))
	}
	for _, text := range all {
		for _, message := range lint.All(directory, values(t, text), "istio-system", true).Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("with %s: %v", text, message)
			}
		}
	}
}

// TestManifests compares each platform's rendering with the manifests beside the chart.
func TestManifests(t *testing.T) {
	t.Parallel()
	for _, name := range platforms(t) {
		head := "# SPDX-License-Identifier: Apache-2.0\n#\n# The chart meshcni for " + strings.Replace(name, "default", "any platform", 1) +
			", as it is made by go test ./chart -update in examples/e2e. The namespace istio-system has to be there.\n"
		wantFile(t, "../../charts/manifests/"+name+".yaml", render(t, forPlatform(name)).Manifest(head))
	}
}

// TestEverything compares a rendering of all that the chart can make.
func TestEverything(t *testing.T) {
	t.Parallel()
	r := render(t, everything)
	text := r.Manifest("")
	for _, hook := range r.Hooks {
		text += "--- # before the deletion\n" + hook.Text
	}
	wantFile(t, "testdata/everything.yaml", text)
}

// TestNames checks that names match Istio's chart, so that its release can be upgraded to this one.
func TestNames(t *testing.T) {
	t.Parallel()
	var names []string
	for _, o := range render(t, "resourceQuotas: {enabled: true}").Objects {
		names = append(names, o.Kind()+" "+strings.TrimPrefix(o.Namespace()+"/", "/")+o.Name())
	}
	slices.Sort(names)
	want := []string{
		"ClusterRole istio-cni", "ClusterRoleBinding istio-cni", "ConfigMap istio-system/istio-cni-config",
		"ConfigMap istio-system/istio-cni-installed", "DaemonSet istio-system/istio-cni-node",
		"ResourceQuota istio-system/istio-cni-resource-quota", "Role istio-system/istio-cni", "RoleBinding istio-system/istio-cni",
		"ServiceAccount istio-system/istio-cni",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if text := render(t, "{}").Manifest(""); !strings.Contains(text, "    matchLabels:\n      k8s-app: istio-cni-node\n") {
		t.Error("the DaemonSet's selector isn't that of Istio's chart")
	}
}

// TestRevisionsShareNothing checks that no object belongs to two revisions.
func TestRevisionsShareNothing(t *testing.T) {
	t.Parallel()
	const features = "resourceQuotas: {enabled: true}\nnetworkPolicy: {enabled: true}\npodMonitor: {enabled: true}\ndashboard: {enabled: true}\n"
	first, second := render(t, features), render(t, features+"revision: canary")
	names := map[string]bool{}
	for _, o := range slices.Concat(first.Objects, first.Hooks) {
		names[o.Kind()+o.Name()] = true
	}
	for _, o := range slices.Concat(second.Objects, second.Hooks) {
		if names[o.Kind()+o.Name()] || !strings.Contains(o.Name(), "istio-cni-canary") {
			t.Errorf("%s %s is of both", o.Kind(), o.Name())
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"excludeNamespace: [a]":                                             "additional properties 'excludeNamespace' not allowed",
		"cni: {excludeNamespace: [a]}":                                      "additional properties 'excludeNamespace' not allowed",
		"settings: {failPolicy: maybe}":                                     "'/settings/failPolicy'",
		"settings: {podName: x}":                                            "additional properties 'podName' not allowed",
		"excludeNamespaces: kube-system":                                    "'/excludeNamespaces'",
		"platform: azure":                                                   `there is no "azure"; it is one of bottlerocket, gke,`,
		"global: {platform: azure}":                                         `there is no "azure"`,
		"image: pilot":                                                      "names no registry",
		"excludeNamespaces: [a]\nsettings: {excludeNamespaces: []}":         "excludeNamespaces and settings.excludeNamespaces are the same, and differ",
		"hub: docker.io/istio":                                              "hub: it names a registry",
		"profile: minimal":                                                  "profile: the other profiles do nothing here",
		"ambient: {enabled: true}\nwatchPods: false":                        "ambient.enabled: ambient mode needs watchPods",
		"ambient: {dnsCaptures: true}":                                      "'/ambient': additional properties 'dnsCaptures' not allowed",
		"ambient: {mode: ebpf}":                                             "'/ambient/mode'",
		"ambient: {way: geneve}":                                            "'/ambient/way'",
		"ambient: {enablementSelectors: [{podSelecter: {}}]}":               "additional properties 'podSelecter' not allowed",
		"ambient: {dnsCapture: false}\nsettings: {ambientDnsCapture: true}": "ambient.dnsCapture and settings.ambientDnsCapture are the same, and differ",
		"capabilities: [SYS_MODULE]":                                        "'/capabilities/0'",
		"terminationGracePeriodSeconds: 5":                                  "'/terminationGracePeriodSeconds'",
	} {
		_, err := load(t).Render(standard(), values(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
}

// TestNotes checks that the notes state what an operator should know about the cluster and the
// values.
func TestNotes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ version, values, says, saysNot string }{
		{"v1.34.4", "{}", "rollout status -n istio-system daemonset/istio-cni-node", "This looks like"},
		{"v1.34.4+k3s1", "{}", "set platform=k3s", ""},
		{"v1.34.4+k3s1", "platform: k3s", "rollout", "This looks like"},
		{"v1.34.4-gke.100", "{}", "set platform=gke", ""},
		{"v1.34.4", "ambient: {enabled: true}", "connects to /var/run/ztunnel/ztunnel.sock.", "does nothing here"},
		{"v1.34.4", "ambient: {enabled: false}", "rollout", "Ambient"},
		{"v1.34.4", "ambient: {enabled: true, mode: node}", "label app=ztunnel in istio-system.", "ztunnel.sock"},
		{"v1.34.4", "platform: openshift\nambient: {enabled: true}", "The daemon enrols each other pod once it runs: ", ""},
		{"v1.34.4", "platform: openshift", "rollout", "Multus"},
		{"v1.34.4", "ambient: {enabled: true}", "rollout", "Multus"},
		{"v1.34.4", "variant: debug", "The value variant does nothing here: there is one image.", ""},
	} {
		release := standard()
		release.KubeVersion = test.version
		r, err := load(t).Render(release, values(t, test.values))
		if err != nil || !strings.Contains(r.Notes, test.says) || (test.saysNot != "" && strings.Contains(r.Notes, test.saysNot)) {
			t.Errorf("%+v: %v\n%s", test, err, r.Notes)
		}
	}
}
