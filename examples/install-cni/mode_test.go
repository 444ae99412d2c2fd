// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestInstallModes installs and uninstalls in each mode, by our setting and by Istio's.
func TestInstallModes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args    string
		file    string
		mode    string
		says    string
		primary bool // the primary configuration has the entry
	}{
		"splice":              {"", "10-calico.conflist", "-rw-r--r--", "mode=splice", true},
		"owned":               {"--install-mode=owned", "02-istio-cni.conflist", "-rw-------", "mode=owned", false},
		"owned, Istio's way":  {"--istio-owned-cni-config --istio-owned-cni-config-filename=00-x.conflist --cni-conf-group-read", "00-x.conflist", "-rw-r-----", "mode=owned", false},
		"drop-in":             {"--install-mode=dropin --container-runtime-version=containerd://2.1.0", "k8s-pod-network/99-istio-cni.conf", "-rw-------", "mode=dropin", false},
		"standalone":          {"--install-mode=standalone", "YYY-istio-cni.conf", "-rw-------", "mode=standalone", false},
		"standalone, named":   {"--chained-cni-plugin=false --cni-conf-name=ZZZ-x.conf", "ZZZ-x.conf", "-rw-------", "mode=standalone", false},
		"auto, drop-in":       {"--install-mode=auto --container-runtime-version=containerd://2.1.4", "k8s-pod-network/99-istio-cni.conf", "-rw-------", "containerd://2.1.4 reads", false},
		"auto, older runtime": {"--install-mode=auto --container-runtime-version=containerd://1.7.2", "00-istio-cni.conflist", "-rw-------", "doesn't read it", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			p := n.startReady(strings.Fields(test.args)...)
			if got := n.read(n.netDir, "10-calico.conflist"); (got != calico) != test.primary {
				t.Errorf("the primary configuration:\n%s", got)
			}
			file := filepath.Join(n.netDir, test.file)
			if info, err := os.Lstat(file); err != nil || info.Mode().String() != test.mode || !n.hasEntry(test.file) {
				t.Errorf("%s: %v, %v; want mode %s, and our entry", test.file, info, err, test.mode)
			}
			if !strings.Contains(p.log.String(), test.says) {
				t.Errorf("the log doesn't say %q", test.says)
			}
			n.remove(filepath.Dir(file), filepath.Base(file))
			if !test.primary {
				n.until("the file is back", filepath.Dir(file), func() bool { return n.hasEntry(test.file) })
			} else {
				n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			}
			p.waitReady()
			p.end()
			n.mustUninstall()
			if diff := cmp.Diff(map[string]string{"10-calico.conflist": "-rw-r--r-- " + calico}, n.files(n.netDir)); diff != "" {
				t.Errorf("after the uninstall (-want +got):\n%s", diff)
			}
			if _, err := os.Lstat(filepath.Join(n.netDir, "k8s-pod-network")); err == nil {
				t.Error("the network's directory is still there")
			}
		})
	}
}

// TestModesFollowEachOther changes the mode from one start to the next.
func TestModesFollowEachOther(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conflist", calico, 0o644)
	for _, step := range []struct{ mode, file string }{
		{"splice", "10-bridge.conflist"},
		{"owned", "02-istio-cni.conflist"},
		{"dropin", "k8s-pod-network/99-istio-cni.conf"},
		{"standalone", "YYY-istio-cni.conf"},
		{"owned", "02-istio-cni.conflist"},
		{"splice", "10-bridge.conflist"},
	} {
		p := n.startReady("--install-mode=" + step.mode)
		for _, file := range []string{"10-bridge.conflist", "02-istio-cni.conflist", "k8s-pod-network/99-istio-cni.conf", "YYY-istio-cni.conf"} {
			if n.hasEntry(file) != (file == step.file) {
				t.Errorf("%s: the plugin is in %s: %v", step.mode, file, n.hasEntry(file))
			}
		}
		p.end()
	}
	n.mustUninstall()
	n.wantOnly("10-bridge.conflist")
}

func TestWhoTookThePluginAwayIsLogged(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.startReady("--install-mode=owned")
	mustRename(t, filepath.Join(n.netDir, "02-istio-cni.conflist"), filepath.Join(n.netDir, "02-istio-cni.conflist.cilium_bak"))
	n.until("the list is back, and the other gone", n.netDir, func() bool {
		_, err := os.Lstat(filepath.Join(n.netDir, "02-istio-cni.conflist.cilium_bak"))
		return n.hasEntry("02-istio-cni.conflist") && os.IsNotExist(err)
	})
	p.end()
	if text := p.log.String(); !strings.Contains(text, "by=cilium") || !strings.Contains(text, "how=renamed-away") {
		t.Error("the log doesn't say that Cilium renamed the file")
	}
	n.wantOnly("02-istio-cni.conflist", "10-calico.conflist")
}

// TestNoDropInForAnOldRuntime: an old runtime would ignore the drop-in silently.
func TestNoDropInForAnOldRuntime(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.start("--install-mode=dropin", "--container-runtime-version=containerd://2.0.5")
	p.waitAnswer(http.StatusServiceUnavailable, "pods would bypass the mesh")
	n.wantOnly("10-calico.conflist")
}
