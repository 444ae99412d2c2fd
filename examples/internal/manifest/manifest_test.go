// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/internal/manifest"
	"github.com/meshcni/meshcni/interception/podsource"
)

// template is a pod template, to be indented into a workload.
const template = `{metadata: {labels: {app: cart}, annotations: {a: "1"}}, spec: {containers: [{name: cart}]}}`

func TestWorkloads(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want []string // names, with a star after those of templates
	}{
		"Pod":       {`{apiVersion: v1, kind: Pod, metadata: {name: cart-0, namespace: shop}, spec: {containers: [{name: a}]}}`, []string{"Pod shop/cart-0"}},
		"generated": {`{apiVersion: v1, kind: Pod, metadata: {generateName: cart-}}`, []string{"Pod default/cart-"}},
		"generated Job": {
			`{apiVersion: batch/v1, kind: Job, metadata: {generateName: once-, namespace: shop}, spec: {template: ` + template + `}}`,
			[]string{"Job shop/once-*"},
		},
		"Deployment":  {`{apiVersion: apps/v1, kind: Deployment, metadata: {name: cart}, spec: {template: ` + template + `}}`, []string{"Deployment default/cart*"}},
		"StatefulSet": {`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: cart, namespace: shop}, spec: {template: ` + template + `}}`, []string{"StatefulSet shop/cart*"}},
		"DaemonSet":   {`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: logs}, spec: {template: ` + template + `}}`, []string{"DaemonSet default/logs*"}},
		"Job":         {`{apiVersion: batch/v1, kind: Job, metadata: {name: once}, spec: {template: ` + template + `}}`, []string{"Job default/once*"}},
		"CronJob":     {`{apiVersion: batch/v1, kind: CronJob, metadata: {name: daily}, spec: {jobTemplate: {spec: {template: ` + template + `}}}}`, []string{"CronJob default/daily*"}},
		"PodTemplate": {`{apiVersion: v1, kind: PodTemplate, metadata: {name: t}, template: ` + template + `}`, []string{"PodTemplate default/t*"}},
		"others'":     {`{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: r}, spec: {template: ` + template + `}}`, []string{"Rollout default/r*"}},
		"List": {
			`{apiVersion: v1, kind: List, items: [
			  {apiVersion: v1, kind: Pod, metadata: {name: a}},
			  {apiVersion: v1, kind: Service, metadata: {name: s}},
			  {apiVersion: apps/v1, kind: Deployment, metadata: {name: b}, spec: {template: ` + template + `}}]}`,
			[]string{"Pod default/a", "Deployment default/b*"},
		},
		"PodList": {`{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}}, {metadata: {name: b}}]}`, []string{"Pod default/a", "Pod default/b"}},
		"documents": {
			"# a comment\n---\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n...\n# nothing\n--- # after it\nkind: Service\n" +
				"---\n{apiVersion: v1, kind: Pod, metadata: {name: b}}\n--- {apiVersion: v1, kind: Pod, metadata: {name: c}}\n---\n",
			[]string{"Pod default/a", "Pod default/b", "Pod default/c"},
		},
		"JSON objects": {
			`{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}` + "\n{\n" +
				`"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "b"}}{"kind": "Pod", "metadata": {"name": "c"}}` + "\n",
			[]string{"Pod default/a", "Pod default/b", "Pod default/c"},
		},
		"beside what is not known": {
			"{kind: Mail, metadata: [], items: {}, template: 5, spec: {template: text, jobTemplate: []}, status: gone}\n---\n" +
				"{kind: Mail, spec: [], template: {metadata: text, spec: text}}\n---\n{kind: Mail, env: {value: {}}}\n---\n" +
				"{kind: Pod, apiVersion: v1, metadata: {name: a}}",
			[]string{"Pod default/a"},
		},
		"CRLF": {"kind: Pod\r\napiVersion: v1\r\nmetadata: {name: a}\r\n---\r\nkind: Pod\r\napiVersion: v1\r\nmetadata: {name: b}\r\n", []string{"Pod default/a", "Pod default/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := manifest.Read([]byte(test.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, pod := range m.Pods {
				name := pod.Name
				if pod.Template {
					name += "*"
				}
				got = append(got, name)
				_, full, _ := strings.Cut(pod.Name, " ")
				if read, err := podsource.ParsePod(pod.Object); err != nil || read.Namespace+"/"+read.Name != full {
					t.Errorf("%s is read as %v, %v", pod.Name, read, err)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTemplateBecomesAPod(t *testing.T) {
	t.Parallel()
	m, err := manifest.Read([]byte(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: cart, namespace: shop}, spec: {template: ` + template + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	pod, err := podsource.ParsePod(m.Pods[0].Object)
	if err != nil || pod.Namespace != "shop" || pod.Name != "cart" || pod.Labels["app"] != "cart" || pod.Annotations["a"] != "1" || len(pod.Containers) != 1 {
		t.Errorf("%+v, %v", pod, err)
	}
}

func TestOthersAreNamed(t *testing.T) {
	t.Parallel()
	m, err := manifest.Read([]byte("{kind: Service, metadata: {name: cart, namespace: shop}}\n---\n{kind: Pod, apiVersion: v1, metadata: {name: a}}\n"))
	if err != nil || !slices.Equal(m.Others, []string{"Service shop/cart"}) {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestUntypedDocuments(t *testing.T) {
	t.Parallel()
	m, err := manifest.Read([]byte("# a plan\n---\nowner: my-mesh\n"))
	if err != nil || len(m.Untyped) != 1 || m.Untyped[0].Line != 2 || !json.Valid(m.Untyped[0].JSON) {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for status, want := range map[string][]netip.Addr{
		`{podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}`: {netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
		`{podIP: 10.0.0.1}`:                   {netip.MustParseAddr("10.0.0.1")},
		`{podIPs: [{ip: "::ffff:10.0.0.1"}]}`: {netip.MustParseAddr("10.0.0.1")},
		`{}`:                                  nil,
	} {
		m, err := manifest.Read([]byte("{kind: Pod, apiVersion: v1, metadata: {name: a}, status: " + status + "}"))
		if err != nil || !slices.Equal(m.Pods[0].Addresses, want) {
			t.Errorf("%s: %v, %v", status, m.Pods, err)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	const annotations = "kind: Pod\nmetadata:\n  name: a\n  annotations:\n    traffic.sidecar.istio.io/excludeInboundPorts: "
	for name, test := range map[string]struct{ text, want string }{
		"nothing":                      {"", "it describes no pod"},
		"only comments":                {"# a\n---\n# b\n", "it describes no pod"},
		"no pod":                       {"{kind: Service, metadata: {name: cart}}", "only Service default/cart"},
		"no template":                  {"{kind: Deployment, metadata: {name: cart}}", "only Deployment default/cart: kubectl get pod"},
		"no YAML":                      {"kind: Pod\n---\na: b: c", "line 3"},
		"twice a key":                  {"kind: Pod\n---\nkind: Pod\nkind: Pod\n", "unusable YAML: yaml: unmarshal errors:\n  line 4: key \"kind\" already set"},
		"a number":                     {annotations + "9090", `line 5: annotations: traffic.sidecar.istio.io/excludeInboundPorts: 9090 is a number, and Kubernetes wants a string: quote it: "9090"`},
		"in a later one":               {"kind: Pod\n---\n" + annotations + "9090", "line 7: annotations"},
		"a boolean":                    {annotations + "true", `true is a boolean`},
		"an old boolean":               {annotations + "No", `No is a boolean`},
		"a label":                      {"kind: Pod\nmetadata: {labels: {a: 1}}", "line 2: labels: a: 1 is a number"},
		"of a template":                {"kind: Deployment\nspec:\n  template:\n    metadata:\n      annotations:\n        a: 1\n", "line 6: annotations: a: 1 is a number"},
		"a variable":                   {"kind: Pod\nspec:\n  containers:\n  - name: istio-proxy\n    env:\n    - name: A\n      value: true\n", "line 7: env: value: true is a boolean"},
		"an item":                      {"{kind: List, items: [{kind: Pod, apiVersion: v1, metadata: {name: a}}, {name: b}]}", `item 2 of the List: it is not a Kubernetes object: it has no "kind"`},
		"a list of lists":              {"{kind: List, items: [{kind: List, items: []}]}", "it is a list itself"},
		"a wrong address":              {"{kind: Pod, apiVersion: v1, metadata: {name: a}, status: {podIPs: [{ip: here}]}}", `"here", which is not an address`},
		"a list":                       {"[]", "not a Kubernetes object"},
		"a broken pod":                 {"{kind: Pod, metadata: []}", "line 1: it is not a Kubernetes object"},
		"endless documents":            {strings.Repeat("---\nkind: Service\n", 1001), "more than 1000 documents"},
		"endless objects":              {strings.Repeat("{}\n", 5000), "line 1001: the text has more than 1000 documents"},
		"rubbish at the end":           {"{\"kind\": \"Pod\"}\ngarbage\n", "did not find expected <document start>: is a line of --- missing between two documents?"},
		"an error in a later object":   {`{"kind": "Pod", "metadata": {"name": "a"}}` + "\n\n" + `{"kind": "Pod", "metadata": {"labels": {"a": 1}}}`, "line 3: labels: a: 1 is a number"},
		"a number by an alias":         {"kind: Pod\nx: &x {a: 9090}\nmetadata:\n  annotations: *x\n", "line 2: annotations: a: 9090 is a number"},
		"a merged number":              {"kind: Pod\nx: &x {a: 9090}\nmetadata:\n  annotations: {<<: *x}\n", "line 2: annotations: a: 9090 is a number"},
		"a number merged of several":   {"kind: Pod\nx: &x {a: 9090}\nmetadata: {annotations: {<<: [*x]}}\n", "line 2: annotations: a: 9090 is a number"},
		"a number of merged metadata":  {"kind: Pod\nx: &x {annotations: {a: 9090}}\nmetadata: {<<: *x}\n", "line 2: annotations: a: 9090 is a number"},
		"metadata in itself":           {"kind: Pod\nmetadata: &m {annotations: {a: 1}, metadata: *m}\n", "line 2: annotations: a: 1 is a number"},
		"an annotation that is a map":  {"kind: Pod\nmetadata: {annotations: {a: {b: c}}}", "line 2: annotations: a: it is a map, and Kubernetes wants a string"},
		"an annotation that is a list": {"kind: Pod\nmetadata: {annotations: {a: [b]}}", "line 2: annotations: a: it is a list, and Kubernetes wants a string"},
		"a name that is a number":      {"kind: Pod\nmetadata:\n  name: 12\n", `line 3: metadata: name: 12 is a number, and Kubernetes wants a string: quote it: "12"`},
		"a text":                       {`"name: n"`, "line 1: it is not a Kubernetes object, as kubectl prints one: it is a string"},
		"a kind that is a number":      {"kind: 12", "line 1: it is not a Kubernetes object, as kubectl prints one: kind is a number"},
		"a workload's template":        {"kind: Deployment\nmetadata: {name: a}\nspec: {template: text}", "line 1: Deployment default/a: its pod template can't be read: it is a string"},
		"a pod's status":               {"kind: Pod\nmetadata: {name: a}\nstatus: {podIP: [a]}", "line 1: Pod default/a: its status can't be read: podIP is a list"},
		"items that are none":          {"kind: List\nitems: text", "line 1: items of the List: want a list: it is a string"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := manifest.Read([]byte(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, %v; want %q", m, err, test.want)
			}
		})
	}
	if _, err := manifest.Read(nil); !errors.Is(err, manifest.ErrNoPod) {
		t.Errorf("nothing is %v", err)
	}
}

func TestQuotedWordsAreStrings(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`"9090"`, `'true'`, "|\n      9090", "a string", "80,90", "yEs", "10.0.0.0/8", "!!str 9090", "*known"} {
		text := "kind: Pod\napiVersion: v1\nmetadata:\n  name: &known \"1\"\n  annotations:\n    a: " + value + "\n"
		if _, err := manifest.Read([]byte(text)); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("kind: Pod\n---\nkind: Pod\n")
	f.Add("{kind: List, items: [{}]}")
	f.Add("--- a\n...\n%YAML 1.2\n---\nb: &a [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := manifest.Read([]byte(text))
		if err != nil {
			return
		}
		for _, pod := range m.Pods {
			if !json.Valid(pod.Object) {
				t.Errorf("%s: not JSON: %s", pod.Name, pod.Object)
			}
		}
	})
}
