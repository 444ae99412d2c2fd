// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
)

func TestDecideByAnnotations(t *testing.T) {
	t.Parallel()
	policy := Policy{
		Membership: Istio().Membership, ExcludeNamespaces: []string{"kube-system"},
		AgentNamespace: "istio-system", AgentName: "istio-cni-node",
	}
	injected := map[string]string{"sidecar.istio.io/status": "{}"}
	for name, test := range map[string]struct {
		namespace, name string
		annotations     map[string]string
		policy          Policy
		want            Reason
	}{
		"not injected":                        {"shop", "cart-0", map[string]string{"a": "b"}, policy, ReasonNotInjected},
		"no annotations":                      {"shop", "cart-0", nil, policy, ReasonNotInjected},
		"injected":                            {"shop", "cart-0", injected, policy, ""},
		"injected, excluded namespace":        {"kube-system", "dns-0", injected, policy, ReasonExcludedNamespace},
		"injected, own agent":                 {"istio-system", "istio-cni-node-x7k2p", injected, policy, ReasonOwnAgent},
		"a label may oppose the opt-out":      {"shop", "cart-0", meshPod(annotate("sidecar.istio.io/inject", "false")).Annotations, policy, ""},
		"a mesh whose injector marks nothing": {"shop", "cart-0", nil, Policy{Membership: Membership{ProxyContainer: "proxy"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, decided := DecideByAnnotations(test.namespace, test.name, test.annotations, test.policy)
			if got.Capture || got.Reason != test.want || decided != (test.want != "") {
				t.Errorf("got %t, %v, %t; want %q", got.Capture, got, decided, test.want)
			}
		})
	}
}

// TestDecideByAnnotationsAgrees has every pod that its annotations keep out of the mesh kept out by Decide too.
func TestDecideByAnnotationsAgrees(t *testing.T) {
	t.Parallel()
	policy := Policy{Membership: Istio().Membership}
	bare := func(p *interception.Pod) { p.Annotations = nil }
	for _, pod := range []interception.Pod{
		meshPod(bare),
		meshPod(bare, func(p *interception.Pod) { p.Containers = nil }),
		meshPod(bare, func(p *interception.Pod) { p.HostNetwork = true }),
		meshPod(bare, injectLabel("true")),
		meshPod(bare, proxyArgs("proxy", "router")),
	} {
		if d, decided := DecideByAnnotations(pod.Namespace, pod.Name, pod.Annotations, policy); !decided || d.Capture {
			t.Errorf("by annotations: got %v, %t", d, decided)
		}
		if d := Decide(pod, policy); d.Capture {
			t.Errorf("by the whole pod: got %v", d)
		}
	}
}

func TestAnnotationsSuffice(t *testing.T) {
	t.Parallel()
	plain := Dialect{
		Membership: Membership{InjectedAnnotation: "mesh.example.com/injected"},
		Fields:     []Field{{Kind: interception.SourceAnnotation, Keys: []string{"mesh.example.com/ports"}}},
		Ignored:    []IgnoredKey{{Kind: interception.SourceAnnotation, Key: "mesh.example.com/old"}},
	}
	if !plain.AnnotationsSuffice() {
		t.Error("a dialect that reads annotations alone needs more")
	}
	for name, change := range map[string]func(d *Dialect){
		"Istio":         func(d *Dialect) { *d = Istio() },
		"no mark":       func(d *Dialect) { d.Membership.InjectedAnnotation = "" },
		"a container":   func(d *Dialect) { d.Membership.ProxyContainer = "proxy" },
		"a label":       func(d *Dialect) { d.Membership.OptOut = "mesh.example.com/inject" },
		"a variable":    func(d *Dialect) { d.Fields = []Field{{Kind: interception.SourceEnv, Keys: []string{"DNS"}}} },
		"an id":         func(d *Dialect) { d.Fields = []Field{{Kind: interception.SourceField, Keys: []string{"runAsUser"}}} },
		"an old switch": func(d *Dialect) { d.Ignored = []IgnoredKey{{Kind: interception.SourceEnv, Key: "OLD"}} },
	} {
		d := plain
		change(&d)
		if d.AnnotationsSuffice() {
			t.Errorf("%s: annotations suffice", name)
		}
	}
}
