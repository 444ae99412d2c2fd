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

func TestFullDisk(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	mount(t, "tmpfs", n.netDir, "tmpfs", 0, "size=16k")
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	filler := strings.Repeat("x", 12<<10)
	n.write(n.netDir, "filler", filler, 0o600)
	p := n.start()
	p.waitAnswer(http.StatusServiceUnavailable, "no space left on device")
	if got := n.read(n.netDir, "10-calico.conflist"); got != calico {
		t.Errorf("the configuration is damaged:\n%s", got)
	}
	// Another attempt may be in progress.
	n.until("nothing is left but these", n.netDir, func() bool { return len(n.files(n.netDir)) == 2 })
	n.remove(n.netDir, "filler")
	p.waitReady()
	n.wantPlugins("10-calico.conflist", "calico", "portmap", "istio-cni")
}

func TestReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	mount(t, n.binDir, n.binDir, "", syscall.MS_BIND, "")
	mount(t, n.binDir, n.binDir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	p := n.start()
	p.waitAnswer(http.StatusServiceUnavailable, "read-only file system; this platform keeps its CNI files elsewhere")
	if err := syscall.Mount("", n.binDir, "", syscall.MS_BIND|syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	p.waitReady()
}

func TestADaemonWaitsForAnUninstall(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	directory, err := os.Open(n.binDir)
	if err != nil {
		t.Fatal(err)
	}
	defer directory.Close()
	if err := syscall.Flock(int(directory.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	stopped := n.start()
	stopped.waitAnswer(http.StatusServiceUnavailable, "config: starting")
	stopped.end()

	p := n.start()
	p.waitAnswer(http.StatusServiceUnavailable, "config: starting")
	n.wantPresent()
	if err := syscall.Flock(int(directory.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	p.waitReady()
}

func TestLinkInTheWayOfTheKubeconfig(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	if err := os.Mkdir(n.runDir, 0o755); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(n.runDirParent(), "precious")
	n.write(n.runDirParent(), "precious", "precious", 0o644)
	link := filepath.Join(n.runDir, "istio-cni-kubeconfig")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	p := n.start()
	p.waitAnswer(http.StatusServiceUnavailable, "symbolic link")
	if got := n.read(n.runDirParent(), "precious"); got != "precious" {
		t.Errorf("the link's target holds %q", got)
	}
	n.remove(n.runDir, "istio-cni-kubeconfig")
	p.waitReady()
}

// mount mounts until the test ends.
func mount(t testing.TB, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(target, syscall.MNT_DETACH) }) //nolint:errcheck // another mount may cover it
}
