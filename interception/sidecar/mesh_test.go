// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/interception"
)

// TestMeshPlansLikeItsParts compares Mesh.Plan with calls of Parse and Plan.
func TestMeshPlansLikeItsParts(t *testing.T) {
	t.Parallel()
	pod := meshPod(annotate(trafficPrefix+"excludeInboundPort", "9090"), annotate("sidecar.istio.io/interceptionMode", "TPROXY"))
	mesh, facts := Mesh{Dialect: Istio(), Owner: "test-mesh"}, interception.Facts{IPv6: true}
	got, err := mesh.Plan(pod, facts)
	if err != nil {
		t.Fatal(err)
	}
	redirect, warnings, err := mesh.Dialect.Parse(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := mustPlan(t, redirect, facts)
	if got.Plan.String() != want.String() || got.Redirect.Mode != ModeTProxy {
		t.Errorf("got %v and\n%s\nwant\n%s", got.Redirect.Mode, got.Plan, want)
	}
	if diff := cmp.Diff(warnings, got.Warnings); diff != "" || len(warnings) != 1 {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestMeshWarnsBesideAnError has a pod whose redirect cannot be planned but has warnings.
func TestMeshWarnsBesideAnError(t *testing.T) {
	t.Parallel()
	mesh := Mesh{Dialect: Istio(), Owner: "test-mesh"}
	mesh.Dialect.Base.Proxy.InboundPort = 0
	got, err := mesh.Plan(meshPod(annotate(trafficPrefix+"excludeInboundPort", "9090")), interception.Facts{})
	if !errors.Is(err, ErrRedirect) || got.Plan != nil || len(got.Warnings) != 1 {
		t.Errorf("got %v and %+v", err, got)
	}
}

// TestMeshErrorsTellWhoseMistakeItIs checks what a caller can distinguish.
func TestMeshErrorsTellWhoseMistakeItIs(t *testing.T) {
	t.Parallel()
	var bad *interception.ParseError
	mesh := Mesh{Dialect: Istio(), Owner: "test-mesh"}
	if got, err := mesh.Plan(meshPod(annotate("sidecar.istio.io/interceptionMode", "NONE")), interception.Facts{}); !errors.As(err, &bad) || got.Plan != nil {
		t.Errorf("a bad annotation: got %v", err)
	}
	mesh.Dialect.Fields[0].Set = nil
	if _, err := mesh.Plan(meshPod(), interception.Facts{}); !errors.Is(err, ErrDialect) {
		t.Errorf("a bad dialect: got %v", err)
	}
	mesh = Mesh{Dialect: Istio(), Owner: "mesh"}
	if _, err := mesh.Plan(meshPod(), interception.Facts{}); !errors.Is(err, interception.ErrPlan) {
		t.Errorf("a bad owner: got %v", err)
	}
}

// TestMembershipIsTheDialects changes only the dialect, where membership is configured.
func TestMembershipIsTheDialects(t *testing.T) {
	t.Parallel()
	mesh := Mesh{Dialect: Istio(), Owner: "test-mesh"}
	mesh.Dialect.Membership.ProxyContainer = "another-proxy"
	if d := mesh.Decide(meshPod()); d.Capture || d.Reason != ReasonNoProxy {
		t.Errorf("got %v", d)
	}
}

func TestMeshValidate(t *testing.T) {
	t.Parallel()
	if err := istioNode().Validate(); err != nil {
		t.Error(err)
	}
	for name, test := range map[string]struct {
		change func(*Mesh)
		want   error
	}{
		"no owner":      {func(m *Mesh) { m.Owner = "" }, interception.ErrName},
		"no membership": {func(m *Mesh) { m.Dialect.Membership = Membership{} }, ErrDialect},
		"no test that a pod can fail": {func(m *Mesh) {
			m.Dialect.Membership = Membership{OptOut: "mesh.example/inject", RuleContainer: "mesh-init"}
		}, ErrDialect},
		"a command of no container": {func(m *Mesh) {
			m.Dialect.Membership = Membership{InjectedAnnotation: "mesh.example/injected", ProxyCommand: "proxy", ProxyType: "sidecar"}
		}, ErrDialect},
		"a variable of no container": {func(m *Mesh) {
			m.Dialect.Membership = Membership{InjectedAnnotation: "mesh.example/injected", DisableEnv: "OFF"}
			m.Dialect.Fields, m.Dialect.Ignored, m.Dialect.Base.Inbound.Include = nil, nil, interception.AllPorts()
		}, ErrDialect},
		"nothing to capture": {func(m *Mesh) {
			m.Dialect = Dialect{Membership: m.Dialect.Membership, Base: Redirect{Proxy: m.Dialect.Base.Proxy}}
		}, ErrDialect},
		"a mistaken field": {func(m *Mesh) { m.Dialect.Fields[0].Keys = nil }, ErrDialect},
	} {
		mesh := istioNode()
		test.change(&mesh)
		if err := mesh.Validate(); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestReasonsOfThePod checks which reasons an edit of the pod can cause.
func TestReasonsOfThePod(t *testing.T) {
	t.Parallel()
	mesh := istioNode()
	for reason, pod := range map[Reason]interception.Pod{
		ReasonOptedOut:          meshPod(injectLabel("false")),
		ReasonNotInjected:       meshPod(func(p *interception.Pod) { p.Annotations = nil }),
		ReasonNoProxy:           meshPod(func(p *interception.Pod) { p.Containers = p.Containers[:2] }),
		ReasonExcludedNamespace: {Namespace: "kube-system", Name: "dns-0"},
	} {
		d := mesh.Decide(pod)
		if d.Reason != reason || d.OfPod != (reason == ReasonOptedOut || reason == ReasonNotInjected) {
			t.Errorf("%s: got %v, of the pod: %t", reason, d, d.OfPod)
		}
	}
}
