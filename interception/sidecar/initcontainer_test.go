// SPDX-License-Identifier: Apache-2.0

package sidecar_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

func TestInitContainersWithoutNetworkAreReported(t *testing.T) {
	t.Parallel()
	id := func(n int64) *int64 { return &n }
	migrate := interception.Container{Name: "migrate", Init: true}
	proxy := interception.Container{Name: "istio-proxy"}
	native := interception.Container{Name: "istio-proxy", Init: true, RestartPolicy: "Always"}
	of := func(user, group *int64) interception.Container {
		return interception.Container{Name: "migrate", Init: true, RunAsUser: user, RunAsGroup: group}
	}
	for name, test := range map[string]struct {
		pod  interception.Pod
		want []string // the containers
	}{
		"none":                {pod: interception.Pod{Containers: []interception.Container{proxy}}},
		"nothing is known":    {pod: interception.Pod{Containers: []interception.Container{{Name: "migrate"}, proxy}}},
		"ordinary":            {interception.Pod{Containers: []interception.Container{migrate, proxy}}, []string{"migrate"}},
		"several":             {interception.Pod{Containers: []interception.Container{migrate, {Name: "wait", Init: true}, proxy}}, []string{"migrate", "wait"}},
		"behind the sidecar":  {pod: interception.Pod{Containers: []interception.Container{native, migrate}}},
		"ahead of it":         {interception.Pod{Containers: []interception.Container{migrate, native, {Name: "wait", Init: true}}}, []string{"migrate"}},
		"another sidecar":     {pod: interception.Pod{Containers: []interception.Container{{Name: "logs", Init: true, RestartPolicy: "Always"}, proxy}}},
		"the proxy's user":    {pod: interception.Pod{Containers: []interception.Container{of(id(1337), nil), proxy}}},
		"the proxy's group":   {pod: interception.Pod{Containers: []interception.Container{of(id(5), id(1337)), proxy}}},
		"another user":        {interception.Pod{Containers: []interception.Container{of(id(1338), id(0)), proxy}}, []string{"migrate"}},
		"an impossible user":  {interception.Pod{Containers: []interception.Container{of(id(1337+1<<32), id(-1)), proxy}}, []string{"migrate"}},
		"the pod's user":      {pod: interception.Pod{RunAsUser: id(1337), Containers: []interception.Container{migrate, proxy}}},
		"not the pod's user":  {interception.Pod{RunAsUser: id(1337), Containers: []interception.Container{of(id(5), nil), proxy}}, []string{"migrate"}},
		"nothing is captured": {pod: without(migrate, proxy)},
		"only DNS is captured": {without(migrate, interception.Container{
			Name: "istio-proxy", Env: map[string]string{"ISTIO_META_DNS_CAPTURE": "true"},
		}), []string{"migrate"}},
		"an excluded group": {pod: interception.Pod{Containers: []interception.Container{of(nil, id(7)), {
			Name: "istio-proxy", Env: map[string]string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "7"},
		}}}},
		"a group that is not included": {pod: interception.Pod{Containers: []interception.Container{of(nil, id(7)), {
			Name: "istio-proxy", Env: map[string]string{"ISTIO_OUTBOUND_OWNER_GROUPS": "8"},
		}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, warnings, err := sidecar.Istio().Parse(test.pod)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range warnings {
				if w.Source.Kind == interception.SourceField && w.Source.Key == "spec.initContainers" {
					got = append(got, w.Source.Value)
				}
				if !strings.Contains(w.Reason, "run it as user 1337") {
					t.Errorf("got %s", w)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestInitContainerAheadOfTheSidecarIsToBeMoved(t *testing.T) {
	t.Parallel()
	for restart, want := range map[string]string{
		"Always": "or move it after istio-proxy, which is a native sidecar",
		"":       "or have istio-proxy injected as a native sidecar",
	} {
		_, warnings, err := sidecar.Istio().Parse(interception.Pod{Containers: []interception.Container{
			{Name: "migrate", Init: true}, {Name: "istio-proxy", Init: restart != "", RestartPolicy: restart},
		}})
		if err != nil || len(warnings) != 1 || !strings.HasSuffix(warnings[0].Reason, want) {
			t.Errorf("%v, %v; want one warning that ends in %q", warnings, err, want)
		}
	}
}

// without returns a pod that captures no outbound connection.
func without(containers ...interception.Container) interception.Pod {
	return interception.Pod{
		Annotations: map[string]string{"traffic.sidecar.istio.io/includeOutboundIPRanges": ""}, Containers: containers,
	}
}
