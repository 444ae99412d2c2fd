// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"maps"
	"testing"

	"github.com/meshcni/meshcni/interception"
)

// meshPod returns a pod that passes every test, changed by the given edits.
func meshPod(edits ...func(*interception.Pod)) interception.Pod {
	pod := interception.Pod{
		Namespace: "shop", Name: "cart-0", UID: "1",
		Labels:      map[string]string{},
		Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
		Containers: []interception.Container{
			{Name: "istio-validation"},
			{Name: "app"},
			{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}, Env: map[string]string{}},
		},
	}
	for _, edit := range edits {
		edit(&pod)
	}
	return pod
}

func annotate(key, value string) func(*interception.Pod) {
	return func(p *interception.Pod) {
		p.Annotations = maps.Clone(p.Annotations)
		p.Annotations[key] = value
	}
}

func injectLabel(value string) func(*interception.Pod) {
	return func(p *interception.Pod) { p.Labels["sidecar.istio.io/inject"] = value }
}

func proxyArgs(args ...string) func(*interception.Pod) {
	return func(p *interception.Pod) { p.Containers[len(p.Containers)-1].Args = args }
}

func proxyEnv(key, value string) func(*interception.Pod) {
	return func(p *interception.Pod) { p.Containers[len(p.Containers)-1].Env[key] = value }
}

// istioNode returns Istio's mesh on a node with a Policy.
func istioNode() Mesh {
	return Mesh{
		Dialect: Istio(), Owner: "istio-cni",
		Policy: Policy{ExcludeNamespaces: []string{"kube-system"}, AgentNamespace: "istio-system", AgentName: "istio-cni-node"},
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	mesh := istioNode()
	name := func(namespace, name string) func(*interception.Pod) {
		return func(p *interception.Pod) { p.Namespace, p.Name = namespace, name }
	}
	for _, tc := range []struct {
		name string
		pod  interception.Pod
		want Reason
	}{
		{"in the mesh", meshPod(), ReasonInMesh},
		{"own agent", meshPod(name("istio-system", "istio-cni-node-x7k2p")), ReasonOwnAgent},
		{"own agent's name elsewhere", meshPod(name("shop", "istio-cni-node-x7k2p")), ReasonInMesh},
		{"own agent's name without a suffix", meshPod(name("istio-system", "istio-cni-node-")), ReasonInMesh},
		{"another pod of the agent's namespace", meshPod(name("istio-system", "istiod-1")), ReasonInMesh},
		{"no name", meshPod(name("shop", "")), ReasonNotKubernetes},
		{"no namespace", meshPod(name("", "cart-0")), ReasonNotKubernetes},
		{"excluded namespace", meshPod(name("kube-system", "dns-0")), ReasonExcludedNamespace},
		{"namespace with an excluded prefix", meshPod(name("kube-system-2", "dns-0")), ReasonInMesh},
		{"host network", meshPod(func(p *interception.Pod) { p.HostNetwork = true }), ReasonHostNetwork},
		{"rules by an init container", meshPod(func(p *interception.Pod) { p.Containers[0].Name = "istio-init" }), ReasonRuleContainer},
		{"proxy disabled", meshPod(proxyEnv("DISABLE_ENVOY", "true")), ReasonProxyDisabled},
		{"proxy disabled with 1", meshPod(proxyEnv("DISABLE_ENVOY", "1")), ReasonProxyDisabled},
		{"proxy not disabled", meshPod(proxyEnv("DISABLE_ENVOY", "false")), ReasonInMesh},
		{"proxy disabled by no boolean", meshPod(proxyEnv("DISABLE_ENVOY", "yes")), ReasonInMesh},
		{"no proxy", meshPod(func(p *interception.Pod) { p.Containers = p.Containers[:2] }), ReasonNoProxy},
		{"gateway", meshPod(proxyArgs("proxy", "router")), ReasonProxyType},
		{"proxy of no kind", meshPod(proxyArgs("proxy", "")), ReasonInMesh},
		{"another command", meshPod(proxyArgs("run", "router")), ReasonInMesh},
		{"no arguments", meshPod(proxyArgs()), ReasonInMesh},
		{"opted out by label", meshPod(injectLabel("false")), ReasonOptedOut},
		{"opted out by annotation", meshPod(annotate("sidecar.istio.io/inject", "false")), ReasonOptedOut},
		{
			"label before annotation",
			meshPod(injectLabel("true"), annotate("sidecar.istio.io/inject", "false")), ReasonInMesh,
		},
		{
			"empty label hides the annotation",
			meshPod(injectLabel(""), annotate("sidecar.istio.io/inject", "false")), ReasonInMesh,
		},
		{"opted out by no boolean", meshPod(annotate("sidecar.istio.io/inject", "nope")), ReasonInMesh},
		{"not injected", meshPod(func(p *interception.Pod) { p.Annotations = nil }), ReasonNotInjected},
		{"injected with an empty status", meshPod(annotate("sidecar.istio.io/status", "")), ReasonInMesh},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := mesh.Decide(tc.pod)
			if got.Reason != tc.want || got.Capture != (tc.want == ReasonInMesh) {
				t.Errorf("Decide = %t, %s; want %s", got.Capture, got, tc.want)
			}
		})
	}
}

// TestNativeSidecar has the proxy among the init containers, where Decide finds it too.
func TestNativeSidecar(t *testing.T) {
	t.Parallel()
	pod := meshPod(func(p *interception.Pod) { p.Containers[0], p.Containers[2] = p.Containers[2], p.Containers[0] })
	if got := (Mesh{Dialect: Istio()}).Decide(pod); !got.Capture {
		t.Errorf("Decide = %s, want the pod in the mesh", got)
	}
}

func TestByNameNeverCaptures(t *testing.T) {
	t.Parallel()
	if d, decided := (Mesh{}).ByName("shop", "cart-0"); decided || d.Capture {
		t.Errorf("ByName = %v, %t; want nothing decided", d, decided)
	}
	if d, decided := (Mesh{}).ByName("", ""); !decided || d.Capture {
		t.Errorf("ByName without names = %v, %t; want not-kubernetes", d, decided)
	}
}

// TestNoMeshCapturesNothing has no Membership: rules would cut off a pod without a proxy.
func TestNoMeshCapturesNothing(t *testing.T) {
	t.Parallel()
	if got := (Mesh{}).Decide(meshPod()); got.Capture || got.Reason != ReasonNoMesh {
		t.Errorf("Decide = %t, %s; want no-mesh", got.Capture, got)
	}
}

func TestDecisionString(t *testing.T) {
	t.Parallel()
	if got := (Decision{Reason: ReasonNoProxy, Detail: "istio-proxy"}).String(); got != "no-proxy (istio-proxy)" {
		t.Errorf("String() = %q", got)
	}
	if got := (Decision{Reason: ReasonInMesh}).String(); got != "in-mesh" {
		t.Errorf("String() = %q", got)
	}
}
