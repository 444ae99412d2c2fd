// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"slices"
	"testing"

	"github.com/meshcni/meshcni/examples/e2e/chart"
)

// TestUsersKeysMeetOurs gives the daemon keys that the chart has as well. Each is rendered once, as
// strict parsers require: rendering fails otherwise. The user's value counts, except for the label
// that selects the pods.
func TestUsersKeysMeetOurs(t *testing.T) {
	t.Parallel()
	daemon := daemonAt(t, "v1.34.4", `
daemonSetLabels: {k8s-app: theirs, app.kubernetes.io/name: theirs}
podLabels: {k8s-app: theirs, app.kubernetes.io/name: theirs}
podAnnotations: {prometheus.io/scrape: "false", team: theirs}
nodeSelector: {kubernetes.io/os: linux, disk: ssd}
`)
	template := daemon.Spec.Template
	if got := template.Labels; got["k8s-app"] != daemon.Spec.Selector.MatchLabels["k8s-app"] || got["app.kubernetes.io/name"] != "theirs" {
		t.Errorf("labels %v", got)
	}
	if got := daemon.Labels; got["k8s-app"] == "theirs" || got["app.kubernetes.io/name"] != "theirs" {
		t.Errorf("labels of the DaemonSet %v", got)
	}
	if got := template.Annotations; got["prometheus.io/scrape"] != "false" || got["prometheus.io/port"] == "" || got["team"] != "theirs" {
		t.Errorf("annotations %v", got)
	}
	if got := template.Spec.NodeSelector; got["disk"] != "ssd" || got["kubernetes.io/os"] != "linux" {
		t.Errorf("node selector %v", got)
	}
}

// TestUninstallOnDeletionIsTurnedOff upgrades to uninstallOnDeletion=false. A daemon of before that
// is stopped then takes neither a refusal nor the removal of the object that it watches for the end
// of the installation: the object stays, and it may still ask for its DaemonSet.
func TestUninstallOnDeletionIsTurnedOff(t *testing.T) {
	t.Parallel()
	for _, settings := range []string{"", "settings: {uninstallOnDeletion: false}"} {
		r := render(t, settings)
		if !slices.ContainsFunc(r.Objects, func(o chart.Object) bool { return o.Kind() == "ConfigMap" && o.Name() == "istio-cni-installed" }) {
			t.Errorf("%q: the object that the daemons watch is not there", settings)
		}
		for _, asks := range []string{"get apps/daemonsets istio-cni-node", "get namespaces istio-system"} {
			if may := (chart.Permission{Object: "Role istio-cni", What: asks}); !slices.Contains(r.Permissions(), may) {
				t.Errorf("%q: missing %s", settings, may)
			}
		}
	}
}
