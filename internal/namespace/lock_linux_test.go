// SPDX-License-Identifier: Apache-2.0

package namespace_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/internal/namespace"
	"github.com/meshcni/meshcni/internal/testing/sandbox"
)

func TestMain(m *testing.M) { os.Exit(sandbox.RunTests(m)) }

func newNamespace(t *testing.T) *sandbox.Namespace {
	t.Helper()
	n, err := sandbox.NewNamespace(filepath.Join(t.TempDir(), "netns"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// TestLock checks that a namespace's lock has one holder at a time, whichever descriptor it uses,
// and that locks of other namespaces are independent.
func TestLock(t *testing.T) {
	t.Parallel()
	one, other := newNamespace(t), newNamespace(t)
	_, release, err := namespace.Lock(t.Context(), one.File())
	if err != nil {
		t.Fatal(err)
	}
	_, releaseOther, err := namespace.Lock(t.Context(), other.File())
	if err != nil {
		t.Fatal(err)
	}
	releaseOther()
	again, err := os.Open(one.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := namespace.Lock(ended, again); !errors.Is(err, context.Canceled) {
		t.Errorf("while it is locked: got %v, want the context's error", err)
	}
	locked := make(chan func())
	go func() {
		_, release, err := namespace.Lock(t.Context(), again)
		if err != nil {
			t.Error(err)
		}
		locked <- release
	}()
	release()
	(<-locked)()
}

// TestLockInherited checks that a process which inherits the lock keeps it after its release here.
func TestLockInherited(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	if held := namespace.Held(t.Context()); held != nil {
		t.Errorf("without a lock: got %s", held.Name())
	}
	held, release, err := namespace.Lock(t.Context(), n.File())
	if err != nil {
		t.Fatal(err)
	}
	keeper := exec.CommandContext(t.Context(), "cat")
	keeper.ExtraFiles = []*os.File{namespace.Held(held)}
	end, err := keeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	release()
	other, err := os.Open(n.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("while another process has the lock: got %v", err)
	}
	if err := errors.Join(end.Close(), keeper.Wait()); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("after its end: got %v", err)
	}
}

// TestLockKept checks that callers go on after a while although another process keeps the lock.
func TestLockKept(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	keeper, err := os.Open(n.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = keeper.Close() }()
	if err := unix.Flock(int(keeper.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	_, release, err := namespace.Lock(t.Context(), n.File())
	if err != nil {
		t.Fatal(err)
	}
	release()
}

func TestRun(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	inside := func() (id string, err error) {
		err = namespace.Run(n.File(), func() (err error) {
			id, err = os.Readlink("/proc/thread-self/ns/net")
			return err
		})
		return id, err
	}
	outside, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if id, err := inside(); err != nil || id == outside {
		t.Errorf("got %s and %v, outside is %s", id, err, outside)
	}
	refusal := errors.New("refused")
	if err := namespace.Run(n.File(), func() error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("got %v, want the function's error", err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := namespace.Run(file, func() error { return nil }); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no namespace: got %v, want EINVAL", err)
	}
}
