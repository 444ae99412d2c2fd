// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// daemonAt returns the DaemonSet that a cluster of a version gets.
func daemonAt(t *testing.T, version, text string) appsv1.DaemonSet {
	t.Helper()
	release := standard()
	release.KubeVersion = version
	r, err := load(t).Render(release, values(t, text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict([]byte(find(t, r, "DaemonSet").Text), &set); err != nil {
		t.Fatal(err)
	}
	return set
}

// TestAppArmor checks that a daemon that looks into pods is not confined, because the runtime's
// profile keeps it from the node's process 1, that values take precedence, and that a cluster whose
// pods have no such field gets the annotation.
func TestAppArmor(t *testing.T) {
	t.Parallel()
	const annotation = "container.apparmor.security.beta.kubernetes.io/install-cni"
	local := "my-profile"
	for text, want := range map[string]struct {
		field      *corev1.AppArmorProfile
		annotation string
	}{
		"{}":                                      {&corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}, "unconfined"},
		"repairInPlace: false":                    {},
		"watchPods: false":                        {},
		"repairInPlace: false\ntryKernel: true":   {},
		"repairInPlace: false\nprofile: ambient":  {&corev1.AppArmorProfile{Type: "Unconfined"}, "unconfined"},
		"appArmorProfile: {}":                     {},
		"appArmorProfile: {type: RuntimeDefault}": {&corev1.AppArmorProfile{Type: "RuntimeDefault"}, "runtime/default"},
		"repairInPlace: false\nappArmorProfile: {type: Unconfined}":                  {&corev1.AppArmorProfile{Type: "Unconfined"}, "unconfined"},
		"cni: {appArmorProfile: {type: Localhost, localhostProfile: " + local + "}}": {&corev1.AppArmorProfile{Type: "Localhost", LocalhostProfile: &local}, "localhost/" + local},
	} {
		for version, hasField := range map[string]bool{"v1.29.14": false, "v1.30.0": true, "v1.30.0-gke.1": true, "v1.34.4+k3s1": true} {
			template := daemonAt(t, version, text).Spec.Template
			field, annotated := want.field, ""
			if !hasField {
				field, annotated = nil, want.annotation
			}
			if diff := cmp.Diff(field, template.Spec.Containers[0].SecurityContext.AppArmorProfile); diff != "" {
				t.Errorf("%s in %s (-want +got):\n%s", text, version, diff)
			}
			if got := template.Annotations[annotation]; got != annotated {
				t.Errorf("%s in %s: the annotation is %q, want %q", text, version, got, annotated)
			}
		}
	}
}

// TestAppArmorProfiles checks that the schema refuses what the API server would.
func TestAppArmorProfiles(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"{type: unconfined}", "{type: Localhost}", "{type: Unconfined, localhostProfile: a}", "{profile: a}"} {
		_, err := load(t).Render(standard(), values(t, "appArmorProfile: "+text))
		if err == nil || !strings.Contains(err.Error(), "'/appArmorProfile") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
