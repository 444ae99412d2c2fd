// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/interception"
)

// TestAmbientWithoutAgent decides by the API server about pods that no agent knows.
func TestAmbientWithoutAgent(t *testing.T) {
	t.Parallel()
	const selected = `"labels": {"istio.io/dataplane-mode": "ambient"}`
	for name, test := range map[string]struct {
		pod, namespace, settings string
		// reason is that of a pod that goes on; a pod of the mesh fails.
		reason string
	}{
		"in the mesh by its namespace": {pod: notInjected, namespace: ambientNamespace},
		"in the mesh by its label":     {pod: strings.Replace(notInjected, `"uid"`, selected+`, "uid"`, 1), namespace: namespace},
		"in the mesh by the operator's selectors": {
			pod: notInjected, namespace: namespace, settings: `{"enablement_selectors": [{"podSelector": {}}]}`,
		},
		"outside":                 {pod: notInjected, namespace: namespace, reason: "no-proxy"},
		"outside, with a sidecar": {pod: injected, namespace: ambientNamespace, reason: "in-mesh"},
		"outside by the operator's selectors": {
			pod: notInjected, namespace: ambientNamespace, settings: `{"enablement_selectors": []}`, reason: "no-proxy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.pod, n.namespace = object(test.pod), object(test.namespace)
			settings := test.settings
			if settings == "" {
				settings = "{}"
			}
			if test.reason == "" {
				n.mustFail(200, []string{"enrol pod shop/web-0 in the ambient mesh", "node-ambient is away", "no such file", n.socket(), "install-cni"}, settings)
			} else if r := n.mustAdd(settings); string(r.Reason) != test.reason {
				t.Errorf("the plugin reports %+v, want reason %s", r, test.reason)
			}
		})
	}
}

const namespace = `{"kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}}`

// TestAmbientNobodyAnswers has neither the agent nor the API server tell about the pod.
func TestAmbientNobodyAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(*node)
		texts   []string
	}{
		"forbidden pods":       {func(n *node) { n.pod = forbid }, []string{"the verb get on pods"}},
		"forbidden namespaces": {func(n *node) { n.namespace = forbid }, []string{"namespace shop: ", "the verb get on namespaces"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			test.prepare(n)
			texts := append(test.texts, "find out whether pod shop/web-0 is in the ambient mesh", n.socket(), "install-cni")
			n.mustFail(201, texts)
			n.mustFail(201, texts, `{"fail_policy": {"default": "open", "closed": ["shop"]}}`)
		})
	}
	n := newNode(t)
	n.namespace = forbid
	if r := n.mustAdd(`{"fail_policy": {"open": ["shop"]}}`); r.Reason != "in-mesh" {
		t.Errorf("with an open policy the sidecar is not found: %+v", r)
	}
	n.pod = forbid
	if r := n.mustAdd(`{"fail_policy": {"open": ["shop"]}}`); r.Reason != "fail-open" {
		t.Errorf("with an open policy: %+v", r)
	}
}

// TestAmbientUnknownPod has an agent that has not heard of the pod: the API server says whether
// that matters.
func TestAmbientUnknownPod(t *testing.T) {
	t.Parallel()
	deaf := func() *agent {
		return &agent{err: &event.Error{Code: event.CodeUnknownPod, Message: "not heard of the pod"}}
	}
	n := newNode(t)
	n.pod = object(notInjected)
	a := n.startAgent(deaf())
	if r := n.mustAdd(); r.Reason != "no-proxy" {
		t.Errorf("the pod outside: %+v", r)
	}
	n.namespace = object(ambientNamespace)
	n.mustFail(211, []string{"not heard of the pod", "node-watcher"})
	if pods, _ := a.seen(); len(pods) != 2 {
		t.Errorf("the agent was asked %d times", len(pods))
	}
}

// TestE30AmbientWaitsForTheAgent begins while no program listens at the socket, and while the
// former agent ends. The next one starts once the plugin has learned that the pod is in the mesh.
func TestE30AmbientWaitsForTheAgent(t *testing.T) {
	t.Parallel()
	for name, ending := range map[string]func(*node){
		"no listener": func(n *node) {
			listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: n.socket(), Net: "unix"})
			if err != nil {
				n.t.Fatal(err)
			}
			listener.SetUnlinkOnClose(false)
			if err := listener.Close(); err != nil {
				n.t.Fatal(err)
			}
		},
		"stopped": func(n *node) {
			n.startAgent(&agent{err: &event.Error{Code: event.CodeStopped, Message: "the agent does not run"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			ending(n)
			n.pod = object(notInjected)
			next := &agent{decision: interception.Decision{Capture: true, Reason: "selected"}}
			n.namespace = func(w http.ResponseWriter, r *http.Request) {
				n.startAgent(next)
				object(ambientNamespace)(w, r)
			}
			if r := n.mustAdd(); r.Reason != "ambient" {
				t.Errorf("the plugin reports %+v", r)
			}
			want := []string{"/api/v1/namespaces/shop/pods/web-0", "/api/v1/namespaces/shop"}
			if got := n.requests(); !slices.Equal(got, want) {
				t.Errorf("the API server was asked for %v, want %v", got, want)
			}
			if pods, _ := next.seen(); len(pods) != 1 {
				t.Errorf("the next agent was asked about %v", pods)
			}
		})
	}
}
