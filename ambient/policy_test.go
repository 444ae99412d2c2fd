// SPDX-License-Identifier: Apache-2.0

package ambient

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
)

func TestEnrolled(t *testing.T) {
	t.Parallel()
	mode := func(value string) map[string]string { return map[string]string{"istio.io/dataplane-mode": value} }
	sidecar := map[string]string{"sidecar.istio.io/status": ""}
	for name, test := range map[string]struct {
		pod       interception.Pod
		phase     string
		namespace map[string]string
		want      string
	}{
		"namespace only":                       {namespace: mode("ambient"), want: "selected (selector 2)"},
		"pod only":                             {pod: interception.Pod{Labels: mode("ambient")}, want: "selected (selector 1)"},
		"both":                                 {pod: interception.Pod{Labels: mode("ambient")}, namespace: mode("ambient"), want: "selected (selector 1)"},
		"neither":                              {want: "not-selected"},
		"pod opted out":                        {pod: interception.Pod{Labels: mode("none")}, namespace: mode("ambient"), want: "not-selected"},
		"gateway in a namespace without label": {pod: interception.Pod{Labels: mode("none")}, want: "not-selected"},
		"namespace of another mesh":            {namespace: mode("kmesh"), want: "not-selected"},
		"sidecar": {
			pod: interception.Pod{Annotations: sidecar}, namespace: mode("ambient"),
			want: "sidecar (annotation sidecar.istio.io/status)",
		},
		"sidecar and pod label": {
			pod:  interception.Pod{Annotations: sidecar, Labels: mode("ambient")},
			want: "sidecar (annotation sidecar.istio.io/status)",
		},
		"host network":               {pod: interception.Pod{HostNetwork: true}, namespace: mode("ambient"), want: "host-network"},
		"host network and pod label": {pod: interception.Pod{HostNetwork: true, Labels: mode("ambient")}, want: "host-network"},
		"succeeded":                  {phase: "Succeeded", namespace: mode("ambient"), want: "finished (Succeeded)"},
		"failed":                     {phase: "Failed", namespace: mode("ambient"), want: "finished (Failed)"},
		"running":                    {phase: "Running", namespace: mode("ambient"), want: "selected (selector 2)"},
		"excluded namespace": {
			pod: interception.Pod{Namespace: "kube-system", Labels: mode("ambient")}, want: "excluded-namespace (kube-system)",
		},
		"the proxy": {
			pod:       interception.Pod{Namespace: "istio-system", Name: "ztunnel-x", Labels: map[string]string{"app": "ztunnel"}},
			namespace: mode("ambient"), want: "proxy (istio-system/ztunnel-x)",
		},
		"a pod that calls itself the proxy": {
			pod:       interception.Pod{Namespace: "shop", Name: "ztunnel-x", Labels: map[string]string{"app": "ztunnel"}},
			namespace: mode("ambient"), want: "selected (selector 2)",
		},
		"another pod of the proxy's namespace": {
			pod: interception.Pod{Namespace: "istio-system", Name: "istiod"}, namespace: mode("ambient"), want: "selected (selector 2)",
		},
	} {
		got := Enrolled(Pod{Pod: test.pod, Phase: test.phase}, Namespace{Name: test.pod.Namespace, Labels: test.namespace}, IstioPolicy())
		if got.String() != test.want || got.Capture != (got.Reason == ReasonSelected) {
			t.Errorf("%s: %s, capture %v, want %s", name, got, got.Capture, test.want)
		}
	}
}

func TestEnrolledSaysWhatAnEditCanChange(t *testing.T) {
	t.Parallel()
	for reason, pod := range map[interception.Reason]Pod{
		ReasonHostNetwork: {Pod: interception.Pod{HostNetwork: true}},
		ReasonFinished:    {Phase: "Failed"},
		ReasonNotSelected: {},
		ReasonSelected:    {Pod: interception.Pod{Labels: map[string]string{"istio.io/dataplane-mode": "ambient"}}},
		ReasonSidecar:     {Pod: interception.Pod{Annotations: map[string]string{"sidecar.istio.io/status": "{}"}}},
	} {
		got := Enrolled(pod, Namespace{}, IstioPolicy())
		want := reason == ReasonNotSelected || reason == ReasonSelected || reason == ReasonSidecar
		if got.Reason != reason || got.OfPod != want {
			t.Errorf("got %s with OfPod %v, want %s with %v", got, got.OfPod, reason, want)
		}
	}
}

func TestZeroPolicyEnrolsNone(t *testing.T) {
	t.Parallel()
	pod := Pod{Pod: interception.Pod{Namespace: "istio-system", Annotations: map[string]string{"": ""}}}
	if got := Enrolled(pod, Namespace{}, Policy{}); got.Reason != ReasonNotSelected {
		t.Errorf("the zero policy says %s", got)
	}
	if got := Enrolled(pod, Namespace{}, Policy{Selectors: []Selector{{}}}); !got.Capture {
		t.Errorf("the zero selector says %s, want that it selects every pod", got)
	}
}
