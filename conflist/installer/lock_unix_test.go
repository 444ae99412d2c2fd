// SPDX-License-Identifier: Apache-2.0

//go:build unix

package installer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/testing/filesystemtest"
)

type news chan string

func newTestInstaller(t *testing.T, binDir string) (*Installer, news) {
	t.Helper()
	log := make(news, 10)
	root := t.TempDir()
	i, err := New(Options{
		Want:   reconciler.Want{Plugin: conflist.Plugin{Type: "linkmesh-cni"}},
		NetDir: filepath.Join(root, "net.d"), BinDir: binDir, RunDir: filepath.Join(root, "run"), CacheDir: filepath.Join(root, "cache"),
		Version: "v1", OnEvent: func(e Event) { log <- e.String() },
	})
	if err != nil {
		t.Fatal(err)
	}
	return i, log
}

// uninstall holds the node as an uninstall does, until the test ends or release is called.
func uninstall(t *testing.T, binDir string) (release func()) {
	t.Helper()
	uninstaller, _ := newTestInstaller(t, binDir)
	held, err := uninstaller.holdAlone(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() { uninstaller.releaseAlone(held) })
	t.Cleanup(release)
	return release
}

func TestADaemonSaysThatItWaitsForAnUninstall(t *testing.T) {
	t.Parallel()
	binDir := t.TempDir()
	release := uninstall(t, binDir)
	daemon, log := newTestInstaller(t, binDir)
	attended := make(chan error, 1)
	go func() {
		leave, err := daemon.Attend(t.Context())
		if err == nil {
			leave()
		}
		attended <- err
	}()
	if line := <-log; !strings.Contains(line, "waiting for an uninstall") || !strings.Contains(line, binDir) {
		t.Errorf("got log %s", line)
	}
	release()
	if err := <-attended; err != nil {
		t.Error(err)
	}
}

func TestWaitingForAnUninstallEndsWithTheContext(t *testing.T) {
	t.Parallel()
	binDir := t.TempDir()
	uninstall(t, binDir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	daemon, _ := newTestInstaller(t, binDir)
	if _, err := daemon.Attend(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
}

// TestLeftoversGoWhileNoOtherMayBegin checks the directory's lock at each removal that a starting
// daemon makes: a process that could lock it then might lose what it had just begun to write.
func TestLeftoversGoWhileNoOtherMayBegin(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	leftovers := []string{"net.d/10-net.conflist.tmp.0123456789abcdef", "bin/x.tmp.0123456789abcdef"}
	for _, name := range leftovers {
		n.write(name, "half")
	}
	another, err := os.Open(n.in("bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer another.Close()
	removals := 0
	ctx := filesystem.WithObserver(t.Context(), filesystemtest.Func(func(call filesystem.Call, do func() error) error {
		if call.Operation == filesystem.Remove && filesystem.IsTemporary(filepath.Base(call.Path)) {
			removals++
			if err := tryLock(another, shared); !errors.Is(err, errLocked) {
				t.Errorf("another program, when %s is removed: %v", call.Path, err)
			}
		}
		return do()
	}))
	release, err := n.installer().Attend(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if removals != len(leftovers) || n.has(leftovers[0]) || n.has(leftovers[1]) {
		t.Errorf("%d removals", removals)
	}
	if err := tryLock(another, shared); err != nil {
		t.Errorf("another daemon, after the start: %v", err)
	}
}

// TestFreshLeftoversStayBesideADaemon of another mesh, which may be writing them.
func TestFreshLeftoversStayBesideADaemon(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	defer n.attend(n.other())()
	n.write("bin/x.tmp.0123456789abcdef", "half")
	defer n.attend(n.installer())()
	if !n.has("bin/x.tmp.0123456789abcdef") {
		t.Error("it is gone")
	}
}
