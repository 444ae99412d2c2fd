// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
)

func TestByAnnotations(t *testing.T) {
	t.Parallel()
	mesh := istioNode()
	injected := map[string]string{"sidecar.istio.io/status": "{}"}
	for name, test := range map[string]struct {
		namespace, name string
		annotations     map[string]string
		mesh            Mesh
		want            Reason
	}{
		"not injected":                        {"shop", "cart-0", map[string]string{"a": "b"}, mesh, ReasonNotInjected},
		"no annotations":                      {"shop", "cart-0", nil, mesh, ReasonNotInjected},
		"injected":                            {"shop", "cart-0", injected, mesh, ""},
		"injected, excluded namespace":        {"kube-system", "dns-0", injected, mesh, ReasonExcludedNamespace},
		"injected, own agent":                 {"istio-system", "istio-cni-node-x7k2p", injected, mesh, ReasonOwnAgent},
		"a label may oppose the opt-out":      {"shop", "cart-0", meshPod(annotate("sidecar.istio.io/inject", "false")).Annotations, mesh, ""},
		"a mesh whose injector marks nothing": {"shop", "cart-0", nil, Mesh{Dialect: Dialect{Membership: Membership{ProxyContainer: "proxy"}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, decided := test.mesh.ByAnnotations(test.namespace, test.name, test.annotations)
			if got.Capture || got.Reason != test.want || decided != (test.want != "") {
				t.Errorf("got %t, %v, %t; want %q", got.Capture, got, decided, test.want)
			}
		})
	}
}

// TestByAnnotationsAgrees checks that Decide also rejects every pod that ByAnnotations rejects.
func TestByAnnotationsAgrees(t *testing.T) {
	t.Parallel()
	mesh := Mesh{Dialect: Istio()}
	bare := func(p *interception.Pod) { p.Annotations = nil }
	for _, pod := range []interception.Pod{
		meshPod(bare),
		meshPod(bare, func(p *interception.Pod) { p.Containers = nil }),
		meshPod(bare, func(p *interception.Pod) { p.HostNetwork = true }),
		meshPod(bare, injectLabel("true")),
		meshPod(bare, proxyArgs("proxy", "router")),
	} {
		if d, decided := mesh.ByAnnotations(pod.Namespace, pod.Name, pod.Annotations); !decided || d.Capture {
			t.Errorf("by annotations: got %v, %t", d, decided)
		}
		if d := mesh.Decide(pod); d.Capture {
			t.Errorf("by the whole pod: got %v", d)
		}
	}
}
