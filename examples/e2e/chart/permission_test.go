// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/e2e/chart"
)

// granting returns the values that change the daemon's permissions, each with its default and
// another setting.
func granting() [][2]string {
	return [][2]string{
		{"watchPods: true", "watchPods: false"},
		{"settings: {uninstallOnDeletion: true}", "settings: {uninstallOnDeletion: false}"},
		{"uninstall: {hook: true}", "uninstall: {hook: false}"},
		{"repairInPlace: true", "repairInPlace: false"},
		{"tryKernel: false", "tryKernel: true"},
		{"capabilities: []", "capabilities: [DAC_OVERRIDE]"},
		{"securityContextConstraints: {enabled: false}", "securityContextConstraints: {enabled: true}"},
	}
}

// TestPermissions compares the table of what each combination of values allows.
func TestPermissions(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	out.WriteString("What the chart's objects allow, for each combination of the values that change it. Made by go test ./chart -update.\n")
	choices := granting()
	for combination := range 1 << len(choices) {
		var lines []string
		for i, choice := range choices {
			lines = append(lines, choice[combination>>i&1])
		}
		fmt.Fprintf(&out, "\n%s\n", strings.Join(lines, ", "))
		for _, permission := range render(t, strings.Join(lines, "\n")).Permissions() {
			fmt.Fprintf(&out, "    %s\n", permission)
		}
	}
	for _, values := range []string{"ambient: {enabled: true}", "ambient: {enabled: true}, repairInPlace: false"} {
		fmt.Fprintf(&out, "\n%s\n", values)
		for _, permission := range render(t, "{"+values+"}").Permissions() {
			fmt.Fprintf(&out, "    %s\n", permission)
		}
	}
	wantFile(t, "testdata/permissions.txt", out.String())
}

// TestRepairGrants checks that each way of repair gets exactly the permissions that it needs.
func TestRepairGrants(t *testing.T) {
	t.Parallel()
	plain := render(t, "repairInPlace: false").Permissions()
	for values, more := range map[string][]string{
		"settings: {readinessTaint: meshcni.io/not-ready}":        {"patch nodes"},
		"settings: {repairLabelPods: true}":                       {"patch pods/status"},
		"settings: {repairDeletePods: true}":                      {"delete pods"},
		"settings: {repairEvictPods: true}":                       {"create pods/eviction"},
		`settings: {repairPolicy: "owners=Job do=repair,delete"}`: {"delete pods"},
		`settings: {repairPolicy: "do=evict,label; do=report"}`:   {"patch pods/status", "create pods/eviction"},
		`settings: {repairPolicy: "namespaces=delete do=report"}`: nil,
		"settings: {repairLabelPods: false, repairResync: 1m}":    nil,
	} {
		var got []string
		for _, p := range render(t, "repairInPlace: false\n"+values).Permissions() {
			if !slices.Contains(plain, p) {
				got = append(got, p.What)
			}
		}
		if diff := cmp.Diff(more, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", values, diff)
		}
	}
	off := render(t, "settings: {repairEnabled: false, repairDeletePods: true}").Permissions()
	if i := slices.IndexFunc(off, func(p chart.Permission) bool {
		return strings.Contains(p.What, "events") || strings.Contains(p.What, "delete pods")
	}); i >= 0 {
		t.Errorf("without repair: %v", off[i])
	}
}

// TestRepairInPlaceGrants checks that repair in place, the default, gets its capabilities, mounts
// and settings, and that they are missing where it is off.
func TestRepairInPlaceGrants(t *testing.T) {
	t.Parallel()
	needs := []string{
		"SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "path: /proc", "mountPath: /host/proc", "path: /var/run/netns", "mountPath: /host/var/run/netns",
		"name: REPAIR_REPAIR_PODS", "name: MOUNTED_PROC_DIR", "name: MOUNTED_NETNS_DIRS",
	}
	for values, granted := range map[string]bool{
		"{}":                                 true,
		"repairInPlace: true":                true,
		"settings: {repairDeletePods: true}": true,
		"repairInPlace: false":               false,
		"watchPods: false":                   false,
		"settings: {repairEnabled: false}":   false,
		"repair: {repairPods: false}":        false,
		"repair: {enabled: false}":           false,
	} {
		text := render(t, values).Manifest("")
		for _, need := range needs {
			if strings.Contains(text, need) != granted {
				t.Errorf("%s: %q is there: %t", values, need, !granted)
			}
		}
	}
}

// TestAmbientGrants checks that ambient mode, which is off by default, gets exactly the
// permissions, mounts and settings that it needs, whichever value turns it on.
func TestAmbientGrants(t *testing.T) {
	t.Parallel()
	const plain = "repairInPlace: false\n"
	without := render(t, plain)
	for values, granted := range map[string]bool{
		"ambient: {enabled: true}":                             true,
		"cni: {ambient: {enabled: true}}":                      true,
		"settings: {ambientEnabled: true}":                     true,
		"profile: ambient":                                     true,
		"global: {profile: ambient}":                           true,
		"profile: ambient\nsettings: {repairLabelPods: false}": true,
		"ambient: {enabled: false}":                            false,
		"ambient: {enabled: false}\nprofile: ambient":          false,
		"settings: {ambientEnabled: false}\nprofile: ambient":  false,
		"ambient: {dnsCapture: true, ipv6: true}":              false,
		"profile: stable":                                      false,
	} {
		r := render(t, plain+values)
		var more []string
		for _, p := range r.Permissions() {
			if !slices.Contains(without.Permissions(), p) {
				more = append(more, p.What)
			}
		}
		var want []string
		if granted {
			want = []string{
				"get namespaces", "list namespaces", "watch namespaces", "patch pods/status",
				"capability SYS_ADMIN", "capability NET_ADMIN", "capability SYS_PTRACE", "capability NET_BROADCAST",
			}
		}
		if diff := cmp.Diff(want, more); diff != "" {
			t.Errorf("%s (-want +got):\n%s", values, diff)
		}
		for _, need := range []string{
			"{path: /proc, type: Directory}", "{name: proc, mountPath: /host/proc, readOnly: true}", "mountPath: /host/var/run/netns, mountPropagation: HostToContainer}",
			"{path: /var/run/ztunnel, type: DirectoryOrCreate}", "{name: ztunnel, mountPath: /var/run/ztunnel}",
			`{name: MOUNTED_PROC_DIR, value: "/host/proc"}`, `{name: MOUNTED_NETNS_DIRS, value: "/host/var/run/netns"}`,
			`{name: AMBIENT_ENABLED, value: "true"}`,
		} {
			if strings.Contains(find(t, r, "DaemonSet").Text, need) != granted {
				t.Errorf("%s: %q is there: %t", values, need, !granted)
			}
		}
	}
}

// TestNodeModeGrants checks what ambient mode gets more where the node captures, whichever value
// says so.
func TestNodeModeGrants(t *testing.T) {
	t.Parallel()
	const ambient = "profile: ambient\n"
	without := render(t, ambient).Permissions()
	for values, granted := range map[string]bool{
		"ambient: {mode: node}":                                  true,
		"settings: {ambientMode: node}":                          true,
		"ambient: {mode: in-pod}":                                false,
		"ambient: {mode: node}\nsettings: {ambientMode: in-pod}": false,
	} {
		got, raw := render(t, ambient+values).Permissions(), chart.Permission{Object: "DaemonSet istio-cni-node", What: "capability NET_RAW"}
		others := slices.DeleteFunc(slices.Clone(got), func(p chart.Permission) bool { return p == raw })
		if len(got) > len(others) != granted || !slices.Equal(others, without) {
			t.Errorf("%s grants %v, want %v, and %s: %t", values, got, without, raw, granted)
		}
	}
}

// TestOtherValuesGrantNothing checks that no other value changes the permissions.
func TestOtherValuesGrantNothing(t *testing.T) {
	t.Parallel()
	all := everything
	for _, granting := range []string{"tryKernel: true\n", "ambient: {enabled: true}\n", "capabilities: [DAC_OVERRIDE]\n", "securityContextConstraints: {enabled: true}\n", "revision: canary\n"} {
		all = strings.Replace(all, granting, "", 1)
	}
	if diff := cmp.Diff(render(t, "{}").Permissions(), render(t, all).Permissions()); diff != "" {
		t.Errorf("(-default +everything):\n%s", diff)
	}
	for _, name := range platforms(t) {
		if got := render(t, forPlatform(name)+"\nsecurityContextConstraints: {enabled: false}").Permissions(); !slices.Equal(got, render(t, "{}").Permissions()) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestReduced removes each permission from a rendering that has all of them, and nothing else.
func TestReduced(t *testing.T) {
	t.Parallel()
	full := render(t, everything)
	permissions := full.Permissions()
	reductions, err := full.Reduced()
	if err != nil || len(reductions) != len(permissions) {
		t.Fatalf("%d reductions for %d permissions: %v", len(reductions), len(permissions), err)
	}
	for i, reduction := range reductions {
		if reduction.Without != permissions[i] {
			t.Errorf("reduction %d is without %s, want %s", i, reduction.Without, permissions[i])
		}
		want := slices.Delete(slices.Clone(permissions), i, i+1)
		if diff := cmp.Diff(want, reduction.Rendering.Permissions()); diff != "" {
			t.Errorf("without %s (-want +got):\n%s", reduction.Without, diff)
		}
		changed := 0
		for j, o := range slices.Concat(reduction.Rendering.Objects, reduction.Rendering.Hooks) {
			if !cmp.Equal(o.Content, slices.Concat(full.Objects, full.Hooks)[j].Content) {
				changed++
			}
		}
		if changed != 1 {
			t.Errorf("without %s %d objects are others", reduction.Without, changed)
		}
	}
	if diff := cmp.Diff(permissions, full.Permissions()); diff != "" {
		t.Errorf("the full rendering has changed (-before +after):\n%s", diff)
	}
}

// TestLeast lists what no value may grant: rights beyond reading pods and detecting the end of the
// installation, privileged mode, the host's namespaces.
func TestLeast(t *testing.T) {
	t.Parallel()
	for _, o := range render(t, everything).Objects {
		for _, never := range []string{"privileged: true", "hostPID: true", "hostNetwork: true", "hostIPC: true", `"*"]`, "allowPrivilegeEscalation: true"} {
			if strings.Contains(o.Text, never) && o.Kind() != "SecurityContextConstraints" {
				t.Errorf("%s %s has %s", o.Kind(), o.Name(), never)
			}
		}
		if o.Kind() == "DaemonSet" && !strings.Contains(o.Text, "readOnlyRootFilesystem: true") {
			t.Errorf("%s can write to its root", o.Name())
		}
	}
	want := []chart.Permission{
		{Object: "ClusterRole istio-cni", What: "get pods"},
		{Object: "ClusterRole istio-cni", What: "list pods"},
		{Object: "ClusterRole istio-cni", What: "watch pods"},
		{Object: "ClusterRole istio-cni", What: "get nodes"},
		{Object: "ClusterRole istio-cni", What: "create events"},
		{Object: "Role istio-cni", What: "get apps/daemonsets istio-cni-node"},
		{Object: "Role istio-cni", What: "get namespaces istio-system"},
		{Object: "Role istio-cni", What: "list configmaps istio-cni-installed"},
		{Object: "Role istio-cni", What: "watch configmaps istio-cni-installed"},
		{Object: "Role istio-cni-uninstall", What: "get apps/daemonsets istio-cni-node"},
		{Object: "Role istio-cni-uninstall", What: "delete apps/daemonsets istio-cni-node"},
	}
	if diff := cmp.Diff(want, render(t, "repairInPlace: false").Permissions()); diff != "" {
		t.Errorf("without repair in place (-want +got):\n%s", diff)
	}
}
