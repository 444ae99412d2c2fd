// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinksAreNotFollowed has a link where the daemon works, to a file of somebody else. Root follows none: neither what it leads to is
// written or removed, nor is anything behind it taken for ours.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		at   func(n *testNode) string // where the link is
		says string                   // why nothing is done; empty: the link itself may go
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

// TestUninstallFollowsNoLinks has a link in the place of each thing that an uninstall writes or removes.
func TestUninstallFollowsNoLinks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		at   func(n *testNode) string
		says string // what is refused; empty: the link itself goes
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
