// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWhatIsInThePlaceOfAFile: the runtime would find an entry but no plugin to run, so that no pod
// would start.
func TestWhatIsInThePlaceOfAFile(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		make func(path string) error
		of   func(n *testNode) string
	}{
		{"a directory for the binary", mkdir, func(n *testNode) string { return filepath.Join(n.binDir, "istio-cni") }},
		{"a link for the binary", dangle, func(n *testNode) string { return filepath.Join(n.binDir, "istio-cni") }},
		{"a directory for the kubeconfig", mkdir, func(n *testNode) string { return filepath.Join(n.runDir, "istio-cni-kubeconfig") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := newReadyNode(t)
			path := test.of(n)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := test.make(path); err != nil {
				t.Fatal(err)
			}
			p := n.start()
			p.waitAnswer(http.StatusServiceUnavailable, "config: waiting for what the plugin needs before the runtime calls it: "+path+", with mode ")
			if n.hasEntry("10-calico.conflist") {
				t.Error("the entry is there")
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			p.waitReady()
			n.wantPlugins("10-calico.conflist", "calico", "portmap", "istio-cni")
		})
	}
}

func mkdir(path string) error  { return os.Mkdir(path, 0o755) }
func dangle(path string) error { return os.Symlink("/nonexistent", path) }

// TestTheTokenOfADaemonThatCantRecordAnything is in the kubeconfig all the same: only another
// directory cannot be written.
func TestTheTokenOfADaemonThatCantRecordAnything(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	n.startReady().end()
	mount(t, n.binDir, n.binDir, "", syscall.MS_BIND, "")
	mount(t, n.binDir, n.binDir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	n.rotateToken("token-2")
	p := n.start()
	n.until("the new token is there", n.runDir, func() bool { return strings.Contains(n.read(n.runDir, "istio-cni-kubeconfig"), "token-2") })
	p.waitAnswer(http.StatusServiceUnavailable, "kubeconfig: record what is done")
}

// TestAClaimThatCantBe is reported once, although each part meets it again and again.
func TestAClaimThatCantBe(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	if err := mkdir(filepath.Join(n.binDir, "istio-cni.claim")); err != nil {
		t.Fatal(err)
	}
	p := n.start()
	for _, part := range []string{"binaries", "kubeconfig", "config"} {
		p.waitAnswer(http.StatusServiceUnavailable, part+": record what is done")
	}
	p.waitLine("part=kubeconfig", "a directory")
	if got := strings.Count(p.log.String(), "the claim can't be used"); got != 1 {
		t.Errorf("told %d times:\n%s", got, p.log)
	}
	n.remove(n.binDir, "istio-cni.claim")
	p.waitReady()
}
