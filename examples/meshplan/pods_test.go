// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// several are two pods of a cluster and the other objects of their manifest.
const several = `apiVersion: v1
kind: Pod
metadata:
  name: orders-0
  namespace: shop
  annotations: {sidecar.istio.io/status: "{}", traffic.sidecar.istio.io/excludeInboundPorts: "8443"}
spec:
  containers: [{name: orders}, {name: istio-proxy}]
status:
  podIPs: [{ip: 10.244.1.7}, {ip: "fd00:1::7"}]
---
apiVersion: v1
kind: Service
metadata: {name: orders, namespace: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec:
  template:
    spec:
      containers: [{name: cart}]
---
apiVersion: v1
kind: Pod
metadata:
  name: cart-0
  namespace: shop
  annotations: {sidecar.istio.io/status: "{}"}
spec:
  containers: [{name: cart}, {name: istio-proxy}]
`

func TestSeveralPods(t *testing.T) {
	t.Parallel()
	got := meshplan(t, several, "plan", "-", "-o", "nft")
	for _, want := range []string{"# Pod shop/orders-0\n", "\n\n# Pod shop/cart-0\n"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in:\n%s", want, got.stdout)
		}
	}
	for _, want := range []string{
		"note: skipped Service shop/orders",
		"Deployment shop/cart: the pod is left alone: no-proxy (istio-proxy); to plan it all the same, add --anyway; a template",
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("no %q in:\n%s", want, got.stderr)
		}
	}
	if got.code != exitFindings {
		t.Errorf("exit code %d, want %d as one is left alone", got.code, exitFindings)
	}
}

func TestSeveralPodsAsJSON(t *testing.T) {
	t.Parallel()
	got := meshplan(t, several, "lint", "-", "-o", "json")
	var views []namedView
	if err := json.Unmarshal([]byte(got.stdout), &views); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if len(views) != 3 || views[0].Name != "Pod shop/orders-0" || views[1].LeftAlone != "no-proxy (istio-proxy)" || views[2].Result == nil {
		t.Errorf("%+v", views)
	}
}

func TestOneOfSeveralPods(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"orders-0", "shop/orders-0", "Pod shop/orders-0"} {
		if got := meshplan(t, several, "plan", "-", "--pod", name); got.code != exitOK || strings.Contains(got.stdout, "#") {
			t.Errorf("--pod %q: %+v", name, got)
		}
	}
	for want, args := range map[string][]string{
		`there is no pod "none": --pod takes one of "Pod shop/orders-0", "Deployment shop/cart", "Pod shop/cart-0"`: {"plan", "-", "--pod", "none"},
		"it has several pods: choose one with --pod":                                                                {"diff", "-", "testdata/cart.yaml"},
		`quote it: "9090"`: {"plan", "testdata/unquoted.yaml"},
	} {
		if got := meshplan(t, several, args...); got.code != exitTrouble || !strings.Contains(got.stderr, want) {
			t.Errorf("%v: %+v, want %q", args, got, want)
		}
	}
	if got := meshplan(t, several, "diff", "-", "testdata/cart.yaml", "--pod", "cart-0"); got.code != exitFindings {
		t.Errorf("%+v", got)
	}
}

// broken are three pods, one of them with an invalid annotation.
const broken = `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: first, annotations: {sidecar.istio.io/status: "{}"}}, spec: {containers: [{name: istio-proxy}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: bad, annotations: {sidecar.istio.io/status: "{}", sidecar.istio.io/interceptionMode: NONE}}, spec: {containers: [{name: istio-proxy}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: last, annotations: {sidecar.istio.io/status: "{}"}}, spec: {containers: [{name: istio-proxy}]}}
`

func TestABadPodHidesNoOther(t *testing.T) {
	t.Parallel()
	got := meshplan(t, broken, "plan", "-", "-o", "nft")
	for _, want := range []string{"# Pod default/first\n", "\n\n# Pod default/last\n"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in:\n%s", want, got.stdout)
		}
	}
	if got.code != exitTrouble || !strings.HasPrefix(got.stderr, "meshplan: -: Pod default/bad: ") || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("exit code %d, %s", got.code, got.stderr)
	}
	got = meshplan(t, broken, "lint", "-", "-o", "json")
	var views []namedView
	if err := json.Unmarshal([]byte(got.stdout), &views); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if got.code != exitTrouble || len(views) != 3 || views[1].Name != "Pod default/bad" || !strings.Contains(views[1].Error, "NONE") || views[2].Result == nil {
		t.Errorf("exit code %d, %+v", got.code, views)
	}
	if got := meshplan(t, broken, "plan", "-", "--pod", "bad"); got.code != exitTrouble || got.stdout != "" || !strings.Contains(got.stderr, "Pod default/bad: ") {
		t.Errorf("%+v", got)
	}
}

// The heading comes before the first pod that is shown, even after a pod that is left alone.
func TestHeadingOfTheFirstPod(t *testing.T) {
	t.Parallel()
	text := readFile(t, "plain.yaml") + "---\n" + readFile(t, "cart-new.yaml")
	if got := meshplan(t, text, "plan", "-"); !strings.HasPrefix(got.stdout, "# Pod ") {
		t.Errorf("%+v", got)
	}
}

// addressed are two pods with addresses of their own.
const addressed = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cart-0", "annotations": {"sidecar.istio.io/status": "{}"}},
 "spec": {"containers": [{"name": "istio-proxy"}]}, "status": {"podIP": "10.244.1.7"}}
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cart-1", "annotations": {"sidecar.istio.io/status": "{}"}},
 "spec": {"containers": [{"name": "istio-proxy"}]}, "status": {"podIP": "10.244.1.8"}}
`

func TestTraceThroughThePodOfAnAddress(t *testing.T) {
	t.Parallel()
	const toFirst, toSecond = "tcp in eth0 192.0.2.9:40000 > 10.244.1.7:8080", "tcp in eth0 192.0.2.9:40000 > 10.244.1.8:8080"
	got := meshplan(t, addressed, "trace", "-", "-o", "short", toSecond)
	if got.code != exitOK || !strings.HasPrefix(got.stdout, "# Pod default/cart-1\ndelivered to proxy-15006") {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(got.stderr, `note: skipped Pod default/cart-0: packet "`) || !strings.Contains(got.stderr, "the pod has no address 10.244.1.8") {
		t.Errorf("no note: %q", got.stderr)
	}
	got = meshplan(t, addressed, "trace", "-", "-o", "json", toFirst, toSecond, toSecond)
	var views []struct{ Result []outcomeView }
	if err := json.Unmarshal([]byte(got.stdout), &views); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	if got.code != exitOK || len(views) != 2 || len(views[0].Result) != 1 || len(views[1].Result) != 2 {
		t.Errorf("%+v", got)
	}
	got = meshplan(t, addressed, "trace", "-", toFirst, "tcp in eth0 192.0.2.9:40000 > 10.244.1.9:8080")
	if got.code != exitTrouble || !strings.Contains(got.stdout, "delivered") || !strings.Contains(got.stderr, "no pod has the address 10.244.1.9") {
		t.Errorf("%+v", got)
	}
}

func TestPodsOfTwoSources(t *testing.T) {
	t.Parallel()
	plan := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(plan, []byte(meshplan(t, "", "plan", "testdata/cart-new.yaml", "-o", "json").stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	both := filepath.Join(t.TempDir(), "both.yaml")
	if err := os.WriteFile(both, []byte(several), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"of the one with several":     {[]string{"testdata/cart.yaml", both, "--pod", "cart-0"}, exitFindings, "no: "},
		"of the other one":            {[]string{both, plan, "--pod", "cart-0"}, exitFindings, "no: "},
		"two of one file":             {[]string{both, both, "--pod", "orders-0", "--pod", "cart-0"}, exitFindings, "no: "},
		"one of one file":             {[]string{both, both, "--pod", "cart-0", "--pod", "shop/cart-0"}, exitOK, "yes"},
		"of a single one":             {[]string{plan, "testdata/cart-new.yaml", "--pod", "cart"}, exitTrouble, `no pod of either source is named "cart": leave --pod out`},
		"of plans":                    {[]string{plan, plan, "--pod", "cart"}, exitTrouble, `no pod of either source is named "cart"`},
		"a plan, named":               {[]string{plan, both, "--pod", "orders-0", "--pod", "cart-0"}, exitTrouble, `it is a plan, which has no pod "orders-0"`},
		"a third":                     {[]string{both, both, "--pod", "a", "--pod", "b", "--pod", "c"}, exitTrouble, "--pod is given 3 times"},
		"a name that the file hasn't": {[]string{"testdata/cart.yaml", both, "--pod", "cart2"}, exitTrouble, `there is no pod "cart2"`},
	} {
		got := meshplan(t, "", append([]string{"equivalent"}, test.args...)...)
		if got.code != test.code || !strings.Contains(got.stdout+got.stderr, test.want) {
			t.Errorf("%s: %+v, want %q", name, got, test.want)
		}
	}
	if got := meshplan(t, "", "plan", plan, "--pod", "cart"); got.code != exitTrouble || !strings.Contains(got.stderr, "leave --pod out") {
		t.Errorf("%+v", got)
	}
	got := meshplan(t, several, "plan", "-", "--pod", "orders-0", "--pod", "cart-0")
	if got.code != exitOK || !strings.Contains(got.stdout, "# Pod shop/orders-0\n") || !strings.Contains(got.stdout, "# Pod shop/cart-0\n") {
		t.Errorf("two pods: %+v", got)
	}
}
