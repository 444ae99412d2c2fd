// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"errors"
	"os"
	"testing"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/testing/filesystemtest"
)

var errKilled = errors.New("killed")

// killed performs a deed repeatedly, each time on a new node from prepare, and interrupts it one
// call later than the time before. Then it calls then with the node. It ends when the deed has made
// all of its calls.
func killed(t *testing.T, prepare func() *testNode, deed func(*testNode, filesystem.Observer) error, then func(n *testNode, calls int)) {
	t.Helper()
	t.Helper()
	for calls := 0; ; calls++ {
		n, made := prepare(), 0
		err := deed(n, filesystemtest.WithoutSyncs(filesystemtest.Func(func(_ filesystem.Call, do func() error) error {
			if made++; made > calls {
				return errKilled
			}
			return do()
		})))
		then(n, calls)
		if made <= calls {
			if err != nil {
				t.Errorf("not killed: %v", err)
			}
			return
		}
	}
}

// newSecondNode has a second directory for binaries, and pods whose removal needs the plugin:
// libcni's cache cannot be read.
func newSecondNode(t *testing.T) *testNode {
	t.Helper()
	n := newTestNode(t)
	n.options.SecondBinDir = n.in("second")
	if err := os.Remove(n.in("cache")); err != nil {
		t.Fatal(err)
	}
	n.install()
	return n
}

// TestAKilledUninstallIsFinished in the second directory too, where pods would be captured.
func TestAKilledUninstallIsFinished(t *testing.T) {
	t.Parallel()
	killed(t, func() *testNode { return newSecondNode(t) }, func(n *testNode, o filesystem.Observer) error {
		return n.installer().Uninstall(filesystem.WithObserver(t.Context(), o), UninstallOptions{})
	}, func(n *testNode, calls int) {
		n.uninstall()
		const first, second = "bin/linkmesh-cni.uninstalled", "second/linkmesh-cni.uninstalled"
		if !n.has("second/linkmesh-cni") || !n.has(first) || !n.has(second) || n.read(first) != n.read(second) {
			t.Errorf("killed after %d calls: the notes are there: %v, %v", calls, n.has(first), n.has(second))
		}
	})
}

// TestAKilledInstallIsFinished in the second directory too, where every pod would pass.
func TestAKilledInstallIsFinished(t *testing.T) {
	t.Parallel()
	killed(t, func() *testNode {
		n := newSecondNode(t)
		n.uninstall()
		return n
	}, func(n *testNode, o filesystem.Observer) error {
		return n.installer().Install(filesystem.WithObserver(t.Context(), o))
	}, func(n *testNode, calls int) {
		n.install()
		if n.has("bin/linkmesh-cni.uninstalled") || n.has("second/linkmesh-cni.uninstalled") {
			t.Errorf("killed after %d calls: a note is there still", calls)
		}
	})
}
