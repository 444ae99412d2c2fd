// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

// TestMain gives the tests mounts of their own.
func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }

func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, mode := range modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, mode)
			mount(t, "tmpfs", n.directory, "tmpfs", 0, "size=16k,mode=755")
			n.write("10-calico.conflist", calicoList, 0o640)
			before := dump(t, n.directory)
			n.write("filler", strings.Repeat("x", 12<<10), 0o600)
			if _, err := n.reconciler().Install(n.context); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("a full disk: %v", err)
			}
			n.unlink("filler")
			n.install()
			n.remove()
			n.want("after the uninstall", before)
		})
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	n := newNode(t, reconciler.Splice)
	n.write("10-calico.conflist", calicoList, 0o640)
	mount(t, n.directory, n.directory, "", syscall.MS_BIND, "")
	mount(t, n.directory, n.directory, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	if _, err := n.reconciler().Install(n.context); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a read-only directory: %v", err)
	}
	n.want("in a read-only directory", map[string]string{"10-calico.conflist": "-rw-r----- " + calicoList})
	if err := syscall.Mount("", n.directory, "", syscall.MS_BIND|syscall.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	n.install()
}

// TestLinksInTheDirectory checks that nothing outside of the directory is read or written through a
// link.
func TestLinksInTheDirectory(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		mode reconciler.Mode
		link string
	}{
		"the primary":             {reconciler.Splice, "10-calico.conflist"},
		"our own list":            {reconciler.Owned, "00-mesh-cni.conflist"},
		"our own single":          {reconciler.Standalone, "YYY-mesh-cni.conf"},
		"the network's directory": {reconciler.DropIn, "k8s-pod-network"},
	} {
		n := newNode(t, test.mode)
		n.write("20-calico.conflist", calicoList, 0o640)
		if err := os.Symlink(outside, filepath.Join(n.directory, test.link)); err != nil {
			t.Fatal(err)
		}
		before := dump(t, n.directory)
		if plan, err := n.reconciler().Install(t.Context()); !errors.Is(err, reconciler.ErrRefused) && !errors.Is(err, reconciler.ErrWaiting) {
			t.Errorf("%s: %v\n%v", name, err, plan)
		}
		n.want(name, before)
		if files := dump(t, outside); len(files) > 0 {
			t.Errorf("%s: written through the link: %v", name, files)
		}
	}
}

func mount(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(target, syscall.MNT_DETACH) }) //nolint:errcheck // another mount may cover it
}
