// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/controller"
	"github.com/meshcni/meshcni/internal/testing/fakecluster"
)

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := controller.New(controller.Options{Timeout: -1})
	for _, want := range []string{"Config is needed", "Pods is needed", "Annotation is needed", "Timeout isn't negative"} {
		if !errors.Is(err, controller.ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	for name, node := range map[string]string{"no node": "", "no configuration": "a"} {
		given := config
		if node != "" {
			given = nil
		}
		if _, err := controller.NewInformer(given, node); !errors.Is(err, controller.ErrOptions) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	nowhere := &rest.Config{Host: "nothing://%"}
	if _, err := controller.NewInformer(nowhere, "a"); err == nil {
		t.Error("there is an informer of nothing")
	}
	pods, err := controller.NewInformer(config, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := controller.New(controller.Options{Config: nowhere, Pods: pods, Annotation: "x"}); err == nil || errors.Is(err, controller.ErrOptions) {
		t.Errorf("got %v", err)
	}
}

// TestNames finds all that Istio's policy and vocabulary read.
func TestNames(t *testing.T) {
	t.Parallel()
	want := []string{
		"ambient.istio.io/bypass-inbound-capture", "ambient.istio.io/dns-capture", "ambient.istio.io/redirection", "app",
		"istio.io/dataplane-mode", "istio.io/reroute-virtual-interfaces", "sidecar.istio.io/status",
		"traffic.istio.io/excludeInboundPorts", "traffic.istio.io/excludeInterfaces", "traffic.istio.io/excludeOutboundIPRanges",
		"traffic.istio.io/excludeOutboundPorts", "traffic.istio.io/includeInboundPorts", "traffic.istio.io/includeOutboundIPRanges",
		"traffic.istio.io/includeOutboundPorts",
	}
	if diff := cmp.Diff(want, controller.Names(ambient.IstioPolicy(), ambient.Istio())); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	policy := ambient.Policy{Selectors: []ambient.Selector{{Pod: ambient.LabelSelector{MatchLabels: map[string]string{"x": "y"}}}}}
	if got := controller.Names(policy, ambient.Vocabulary{}); !slices.Equal(got, []string{"x"}) {
		t.Errorf("got %q", got)
	}
}

// TestPermissions needs those of the package's comment, and no more.
func TestPermissions(t *testing.T) {
	t.Parallel()
	cluster := shop(pod("web"))
	cluster.Put(fakecluster.Pod{Namespace: "left", Name: "behind", UID: "1", Node: "a"})
	var mu sync.Mutex
	used := map[string]bool{}
	cluster.Answer(func(r *http.Request) int {
		verb := map[string]string{http.MethodGet: "list", http.MethodPatch: "patch"}[r.Method]
		if r.URL.Query().Get("watch") == "true" {
			verb = "watch"
		}
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			return http.StatusUnprocessableEntity // so that it lists, too
		}
		mu.Lock()
		defer mu.Unlock()
		used[verb+" "+r.URL.Path] = true
		return 0
	})
	f := start(t, cluster)
	a := read(f)
	a.await(t, func() bool { return a.complete })
	if err := f.Annotate(t.Context(), named("web", "uid-web"), ambient.StatusEnabled); err != nil {
		t.Error(err)
	}
	a.await(t, func() bool { return a.pods["uid-web"].Annotations[redirection] == "enabled" })
	cluster.PutNamespace("shop", nil)
	a.await(t, func() bool { return a.namespaces["shop"] == nil })
	f.end()
	want := map[string]bool{
		"list /api/v1/pods": true, "watch /api/v1/pods": true, "list /api/v1/namespaces": true, "watch /api/v1/namespaces": true,
		"patch /api/v1/namespaces/shop/pods/web/status": true,
	}
	if diff := cmp.Diff(want, used); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
