// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinksAreNotFollowed has a link to another user's file where the daemon works. Root follows no
// link: the target is neither written nor removed, nor taken for ours.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		at   func(n *testNode) string // where the link is
		says string                   // why nothing is done; empty: the link itself may be removed
	}{
		"plugin":        {func(n *testNode) string { return filepath.Join(n.binDir, "istio-cni") }, "symbolic link"},
		"claim":         {func(n *testNode) string { return filepath.Join(n.binDir, "istio-cni.claim") }, "symbolic link"},
		"marker":        {func(n *testNode) string { return filepath.Join(n.binDir, "istio-cni.uninstalled") }, ""},
		"kubeconfig":    {func(n *testNode) string { return filepath.Join(n.runDir, "istio-cni-kubeconfig") }, "symbolic link"},
		"request":       {func(n *testNode) string { return filepath.Join(n.runDir, "istio-cni.uninstall-on-exit") }, ""},
		"list":          {func(n *testNode) string { return filepath.Join(n.netDir, "10-bridge.conflist") }, "symbolic link"},
		"configuration": {func(n *testNode) string { return filepath.Join(n.netDir, "05-first.conflist") }, "symbolic link"},
		"leftover": {func(n *testNode) string {
			return filepath.Join(n.netDir, "10-bridge.conflist.tmp.0123456789abcdef")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-bridge.conf", bridge, 0o644)
			precious := strings.Replace(calico, "k8s-pod-network", "precious", 1)
			n.write(n.runDirParent(), "precious", precious, 0o604)
			if err := os.Mkdir(n.runDir, 0o755); err != nil {
				t.Fatal(err)
			}
			link := test.at(n)
			if err := os.Symlink(filepath.Join(n.runDirParent(), "precious"), link); err != nil {
				t.Fatal(err)
			}
			p := n.start()
			if test.says != "" {
				p.waitAnswer(http.StatusServiceUnavailable, test.says)
				n.remove("", link)
			}
			p.waitReady()
			p.end()
			n.mustUninstall()
			info, err := os.Stat(filepath.Join(n.runDirParent(), "precious"))
			if err != nil || info.Mode().Perm() != 0o604 || n.read(n.runDirParent(), "precious") != precious {
				t.Errorf("what the link leads to is %v, %v", info, err)
			}
			if got := n.read(n.netDir, "10-bridge.conf"); got != bridge {
				t.Errorf("after the uninstall:\n%s", got)
			}
		})
	}
}

// TestUninstallFollowsNoLinks has a link in place of each file that an uninstall writes or removes.
func TestUninstallFollowsNoLinks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		at   func(n *testNode) string
		says string // what is refused; empty: the link itself is removed
	}{
		"plugin":     {func(n *testNode) string { return filepath.Join(n.binDir, "istio-cni") }, ""},
		"kubeconfig": {func(n *testNode) string { return filepath.Join(n.runDir, "istio-cni-kubeconfig") }, ""},
		"claim":      {func(n *testNode) string { return filepath.Join(n.binDir, "istio-cni.claim") }, ""},
		"marker":     {func(n *testNode) string { return filepath.Join(n.binDir, "istio-cni.uninstalled") }, "symbolic link"},
		"list":       {func(n *testNode) string { return filepath.Join(n.netDir, "10-calico.conflist") }, "symbolic link"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			n.startReady().end()
			precious := "precious"
			if name == "list" { // what a runtime would load
				precious = n.read(n.netDir, "10-calico.conflist")
			}
			n.write(n.runDirParent(), "precious", precious, 0o604)
			link := test.at(n)
			if err := os.Remove(link); err != nil && name != "marker" {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(n.runDirParent(), "precious"), link); err != nil {
				t.Fatal(err)
			}
			code, output := n.uninstall()
			if (code != exitOK) != (test.says != "") || !strings.Contains(output, test.says) {
				t.Errorf("exit code %d, and the output should say %q:\n%s", code, test.says, output)
			}
			if got := n.read(n.runDirParent(), "precious"); got != precious {
				t.Errorf("what the link leads to holds\n%s", got)
			}
		})
	}
}

// TestALinkedPrimary: the primary configuration is a link by the directory's name on the node; here
// the directory is mounted elsewhere.
func TestALinkedPrimary(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args     string
		in, then string // the file with the entry, at first and after the link changed
	}{
		"no mode": {"", "00-istio-cni.conflist", "00-istio-cni.conflist"},
		"drop-in": {"--container-runtime-version=containerd://2.1.4", "k8s-pod-network/99-istio-cni.conf", "k8s-pod-network/99-istio-cni.conf"},
		"owned":   {"--install-mode=owned", "02-istio-cni.conflist", "02-istio-cni.conflist"},
		"splice":  {"--install-mode=splice", "v1/net.json", "v2/net.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.env["CNI_NET_DIR"] = "/etc/cni/net.d"
			for _, version := range []string{"v1", "v2"} {
				if err := os.Mkdir(filepath.Join(n.netDir, version), 0o755); err != nil {
					t.Fatal(err)
				}
				n.write(filepath.Join(n.netDir, version), "net.json", calico, 0o604)
			}
			lead := func(version string) {
				if err := os.Symlink("/etc/cni/net.d/"+version+"/net.json", filepath.Join(n.netDir, "new")); err != nil {
					t.Fatal(err)
				}
				mustRename(t, filepath.Join(n.netDir, "new"), filepath.Join(n.netDir, "10-calico.conflist"))
			}
			lead("v1")
			p := n.startReady(strings.Fields(test.args)...)
			files := []string{"v1/net.json", "v2/net.json", "00-istio-cni.conflist", "02-istio-cni.conflist", "k8s-pod-network/99-istio-cni.conf"}
			for _, file := range files {
				if n.hasEntry(file) != (file == test.in) {
					t.Errorf("the plugin is in %s: %v", file, n.hasEntry(file))
				}
			}
			n.write(filepath.Join(n.netDir, "v1"), "net.json", calico, 0o604)
			n.until("the entry is back", filepath.Dir(filepath.Join(n.netDir, test.in)), func() bool { return n.hasEntry(test.in) })
			lead("v2")
			n.until("the entry is where the link leads", filepath.Dir(filepath.Join(n.netDir, test.then)), func() bool { return n.hasEntry(test.then) })
			n.until("the entry is nowhere else", filepath.Join(n.netDir, "v1"), func() bool { return !n.hasEntry("v1/net.json") })
			p.waitReady()
			p.end()
			n.mustUninstall()
			for _, version := range []string{"v1", "v2"} {
				if got := n.read(filepath.Join(n.netDir, version), "net.json"); got != calico {
					t.Errorf("%s after the uninstall:\n%s", version, got)
				}
			}
			if target, err := os.Readlink(filepath.Join(n.netDir, "10-calico.conflist")); err != nil || target != "/etc/cni/net.d/v2/net.json" {
				t.Errorf("the link leads to %s, %v", target, err)
			}
		})
	}
}
