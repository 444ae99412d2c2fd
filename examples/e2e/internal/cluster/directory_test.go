// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/e2e/internal/cluster"
)

func newDirectory(t *testing.T, below string) (directory string, lock *os.File) {
	t.Helper()
	directory, lock, err := cluster.NewDirectory(below)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	for _, name := range []string{"logs/etcd.log", "node1/pods/web/0.log", "node1/containerd/blob", "pki/ca.key"} {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return directory, lock
}

func TestSweepRemovesWhatKilledRunsLeave(t *testing.T) {
	t.Parallel()
	below := t.TempDir()
	running, _ := newDirectory(t, below)
	killed, lock := newDirectory(t, below)
	lock.Close() // as the kernel does
	failed, lock := newDirectory(t, below)
	if err := cluster.Keep(failed); err != nil {
		t.Fatal(err)
	}
	lock.Close()
	others := filepath.Join(below, "others")
	if err := os.Mkdir(others, 0o755); err != nil {
		t.Fatal(err)
	}

	removed, err := cluster.Sweep(below)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{killed}, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	for directory, stays := range map[string]bool{running: true, killed: false, failed: true, others: true} {
		if _, err := os.Stat(directory); (err == nil) != stays {
			t.Errorf("%s stays=%t: %v", directory, stays, err)
		}
	}
}

func TestKeepLeavesLogsAlone(t *testing.T) {
	t.Parallel()
	directory, _ := newDirectory(t, t.TempDir())
	if err := cluster.Keep(directory); err != nil {
		t.Fatal(err)
	}
	var left []string
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(directory, path)
			left = append(left, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"keep", "logs/etcd.log", "logs/node1-pods/web/0.log"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// The configuration of a node with a bridge.
func ExampleNetwork_Configuration() {
	fmt.Println(cluster.NoNetwork.Configuration(1) == "", len(cluster.BridgeNetwork.Configuration(1)) > 0)
	// Output: true true
}
