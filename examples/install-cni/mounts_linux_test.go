// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/examples/install-cni/internal/mounts"
)

// TestADirectoryThatIsMovedOnTheNode: the container has the old directory, and the runtime reads
// the new one. After a restart the plugin is there.
func TestADirectoryThatIsMovedOnTheNode(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		away func(dir string) error
	}{
		{"moved", func(dir string) error { return os.Rename(dir, dir+".bak") }},
		{"removed", func(dir string) (err error) {
			for range 1000 { // the daemon restores files
				if err = os.RemoveAll(dir); err == nil {
					break
				}
			}
			return err
		}},
	} {
		for _, of := range []string{"net.d", "bin", "run"} {
			t.Run(test.name+" "+of, func(t *testing.T) {
				t.Parallel()
				n := newReadyNode(t)
				if err := os.Mkdir(n.runDir, 0o755); err != nil {
					t.Fatal(err)
				}
				at := map[string]string{"net.d": n.netDir, "bin": n.binDir, "run": n.runDir}[of]
				onNode := at + ".node"
				mustRename(t, at, onNode)
				n.bind(onNode, at)
				p := n.startReady()
				if err := test.away(onNode); err != nil {
					t.Fatal(err)
				}
				p.mustEndByItself(exitFailure, at+": the directory that is mounted here was moved away or removed", "has to be started again")
				if strings.Contains(p.log.String(), "stopping; everything stays") {
					t.Errorf("it was stopped:\n%s", p.log)
				}

				if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil {
					t.Fatal(err)
				}
				n.bind(onNode, at)
				n.write(n.netDir, "10-calico.conflist", calico, 0o644)
				n.startReady()
				n.wantPlugins("10-calico.conflist", "calico", "portmap", "istio-cni")
			})
		}
	}
}

// TestAnEmptyDirectoryThatIsRemovedOnTheNode: its removal causes no event, nor does that of earlier
// content.
func TestAnEmptyDirectoryThatIsRemovedOnTheNode(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"while the daemon looks", "between two looks"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			removeEmptyDirectory(t, when == "while the daemon looks")
		})
	}
}

func removeEmptyDirectory(t *testing.T, during bool) {
	t.Helper()
	onNode, at := filepath.Join(t.TempDir(), "node"), filepath.Join(t.TempDir(), "container")
	(&testNode{t: t}).bind(onNode, at)
	placed, err := mounts.New(mounts.Table, at)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancelCause(t.Context())
	d := &daemon{env: environment{lookAround: time.Millisecond}, mounts: placed, end: end}
	removed, ended := make(chan error, 1), make(chan error, 1)
	remove := sync.OnceFunc(func() { removed <- os.Remove(onNode) })
	looked := func(string) {
		if during {
			remove()
		} else {
			go remove()
		}
	}
	go func() { ended <- d.stayPut().Run(ctx, looked) }()
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		t.Fatal("it doesn't notice")
	}
	if err := <-ended; !errors.Is(err, mounts.ErrMoved) || !errors.Is(context.Cause(ctx), mounts.ErrMoved) {
		t.Errorf("%v, %v", err, context.Cause(ctx))
	}
}

// bind shows a directory of the node in a container, and creates it if it is missing, as a
// container runtime does.
func (n *testNode) bind(onNode, at string) {
	n.t.Helper()
	for _, dir := range []string{onNode, at} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	mount(n.t, onNode, at, "", syscall.MS_BIND, "")
}

// mustEndByItself checks that the daemon ends although it was not stopped.
func (p *process) mustEndByItself(code int, words ...string) {
	t := p.node.t
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("it goes on:\n%s", p.log)
	}
	for _, word := range words {
		if p.code != code || !strings.Contains(p.log.String(), word) {
			t.Errorf("code %d, want %d and %q:\n%s", p.code, code, word, p.log)
		}
	}
}
