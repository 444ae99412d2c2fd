// SPDX-License-Identifier: Apache-2.0

//go:build unix

package installer

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
)

// news hands on every event.
type news chan string

// newTestInstaller is an installer for the node with this binary directory.
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
	release, err := uninstaller.lock(t.Context(), exclusive)
	if err != nil {
		t.Fatal(err)
	}
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
