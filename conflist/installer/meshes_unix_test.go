// SPDX-License-Identifier: Apache-2.0

//go:build unix

package installer

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/conflist/reconciler"
)

func (n *testNode) other() *Installer {
	n.t.Helper()
	n.write("others/other-cni", "another program")
	o := n.options
	o.Want = reconciler.Want{Plugin: conflist.Plugin{Type: "other-cni"}}
	o.SourceDir, o.RunDir = n.in("others"), n.in("other-run")
	i, err := New(o)
	if err != nil {
		n.t.Fatal(err)
	}
	return i
}

func (n *testNode) attend(i *Installer) (release func()) {
	n.t.Helper()
	release, err := i.Attend(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	return release
}

// TestTwoMeshesAreUninstalledApart runs a daemon of one mesh while the other comes and goes.
func TestTwoMeshesAreUninstalledApart(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	first := n.installer()
	defer n.attend(first)()
	n.ensure(first)
	if err := n.other().Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.other().Inspect(t.Context()).Running || !n.installer().Inspect(t.Context()).Running {
		t.Error("which daemon runs is told wrongly")
	}
	for _, name := range []string{"net.d/10-net.conflist.tmp.0123456789abcdef", "bin/x.tmp.0123456789abcdef"} {
		n.write(name, "half of what the first mesh writes")
	}
	if err := n.other().Uninstall(t.Context(), UninstallOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"bin/other-cni": false, "bin/other-cni.lock": false, "bin/linkmesh-cni": true, "bin/linkmesh-cni.lock": true,
		"net.d/10-net.conflist.tmp.0123456789abcdef": true, "bin/x.tmp.0123456789abcdef": true,
	} {
		if n.has(name) != want {
			t.Errorf("%s is there: %v, want %v", name, !want, want)
		}
	}
	if types := n.plugins(); len(types) != 2 || types[1] != testPlugin {
		t.Errorf("the list has %q", types)
	}
	if err := n.installer().Uninstall(t.Context(), UninstallOptions{}); !errors.Is(err, ErrInUse) {
		t.Errorf("uninstall of the mesh with a daemon: %v", err)
	}
}

// TestAnUninstallThatFailsIsFollowed has an uninstall fail beside another mesh's daemon. The next
// one continues: no daemon of the plugin is at work.
func TestAnUninstallThatFailsIsFollowed(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	n.options.Kubeconfig = n.kubeconfig()
	n.install()
	defer n.attend(n.other())()
	kubeconfig := n.installer().options.kubeconfigPath()
	if err := errors.Join(os.Remove(kubeconfig), os.MkdirAll(filepath.Join(kubeconfig, "in-its-place"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := n.installer().Uninstall(t.Context(), UninstallOptions{}); err == nil || errors.Is(err, ErrInUse) {
		t.Fatalf("uninstall with a directory in the place of the kubeconfig: %v", err)
	}
	if err := os.RemoveAll(kubeconfig); err != nil {
		t.Fatal(err)
	}
	if err := n.installer().Uninstall(t.Context(), UninstallOptions{}); err != nil {
		t.Errorf("uninstall again: %v", err)
	}
}

// TestAnUninstallNoticesADaemonWithoutTheFile: a daemon of an earlier version locks the directory
// alone, and writes nothing about it into the claim.
func TestAnUninstallNoticesADaemonWithoutTheFile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		session session // in the claim
		others  bool    // whether others hold the directory's lock
	}{
		"at work":                                 {session{Number: 1, ID: "x"}, false},
		"followed by one that has left":           {session{Number: 2, Lock: lockSome}, false},
		"followed by one that was killed":         {session{Number: 2, ID: "y", Lock: lockSome}, false},
		"it has left":                             {session{Number: 1}, true},
		"followed when it had left, and left":     {session{Number: 2, Lock: lockAll}, true},
		"followed when it had left, and killed":   {session{Number: 2, ID: "y", Lock: lockAll}, true},
		"it has never been, nor another of these": {session{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTestNode(t)
			n.install()
			n.setSession(test.session)
			older, err := os.Open(n.in("bin"))
			if err != nil {
				t.Fatal(err)
			}
			defer older.Close()
			if err := tryLock(older, shared); err != nil {
				t.Fatal(err)
			}
			if running := n.installer().Inspect(t.Context()).Running; running == test.others {
				t.Errorf("a daemon of the plugin runs: %v", running)
			}
			err = n.installer().Uninstall(t.Context(), UninstallOptions{})
			if errors.Is(err, ErrInUse) == test.others || test.others && err != nil {
				t.Errorf("uninstall: %v", err)
			}
		})
	}
}

// TestWhatADaemonSaysOfTheLock follows the session's Lock through the daemons of a node, which
// another mesh's daemon keeps busy.
func TestWhatADaemonSaysOfTheLock(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before session
		busy   bool // another daemon is at work
		want   string
	}{
		"the first":                           {session{}, true, lockAll},
		"after one that locks the file":       {session{Number: 1, ID: "x", Lock: lockAll}, true, lockAll},
		"after one of before that has left":   {session{Number: 1}, true, lockAll},
		"beside one of before":                {session{Number: 1, ID: "x"}, true, lockSome},
		"after one that was beside such":      {session{Number: 2, Lock: lockSome}, true, lockSome},
		"after all of them, on a node alone":  {session{Number: 2, Lock: lockSome}, false, lockAll},
		"after a killed one, on a node alone": {session{Number: 1, ID: "x"}, false, lockAll},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTestNode(t)
			n.install()
			n.setSession(test.before)
			if test.busy {
				defer n.attend(n.other())()
			}
			daemon := n.installer()
			release := n.attend(daemon)
			n.ensure(daemon)
			if got := n.session(); got.ID == "" || got.Lock != test.want {
				t.Errorf("at work: %+v, want %q", got, test.want)
			}
			release()
			if got := n.session(); got.ID != "" || got.Lock != test.want {
				t.Errorf("it has left: %+v, want %q", got, test.want)
			}
		})
	}
}

// TestOlderVersionsNoticeADaemon by the directory's lock, the only one that they check.
func TestOlderVersionsNoticeADaemon(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	daemon := n.installer()
	release := n.attend(daemon)
	older, err := os.Open(n.in("bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer older.Close()
	if err := tryLock(older, exclusive); !errors.Is(err, errLocked) {
		t.Errorf("an uninstall beside a daemon: %v", err)
	}
	release()
	if err := tryLock(older, exclusive); err != nil {
		t.Errorf("an uninstall after it: %v", err)
	}
}

// TestWithoutTheFile has a directory in the lock file's place: the directory's lock is enough.
func TestWithoutTheFile(t *testing.T) {
	t.Parallel()
	n := newTestNode(t)
	if err := os.MkdirAll(n.in("bin/linkmesh-cni.lock/x"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(n.in("account/token"), n.in("bin/other-cni.lock")); err != nil {
		t.Fatal(err)
	}
	daemon := n.other()
	release := n.attend(daemon)
	n.ensure(daemon)
	if got := n.session("other-cni"); got.ID == "" || got.Lock != "" {
		t.Errorf("at work: %+v", got)
	}
	if err := n.other().Uninstall(t.Context(), UninstallOptions{}); !errors.Is(err, ErrInUse) || n.saidTimes("can't lock the plugin's own file") == 0 {
		t.Errorf("uninstall beside a daemon: %v, %q", err, n.said)
	}
	release()
	if err := n.other().Uninstall(t.Context(), UninstallOptions{}); err != nil || n.read("account/token") != "secret" {
		t.Errorf("uninstall: %v", err)
	}
}

func (n *testNode) ensure(i *Installer) {
	n.t.Helper()
	parts := i.Parts()
	for again := true; again; {
		again = false
		for _, part := range parts {
			result, err := part.Ensure(n.t.Context())
			if err != nil {
				n.t.Fatalf("%s: %v", part.Name(), err)
			}
			again = again || result != Right
		}
	}
}

func (n *testNode) plugins() (types []string) {
	n.t.Helper()
	var list struct{ Plugins []struct{ Type string } }
	if err := json.Unmarshal([]byte(n.read("net.d/10-net.conflist")), &list); err != nil {
		n.t.Fatal(err)
	}
	for _, plugin := range list.Plugins {
		types = append(types, plugin.Type)
	}
	return types
}

func (n *testNode) session(plugin ...string) session {
	n.t.Helper()
	name := testPlugin
	if len(plugin) > 0 {
		name = plugin[0]
	}
	var current claim
	if err := json.Unmarshal([]byte(n.read("bin/"+name+".claim")), &current); err != nil {
		n.t.Fatal(err)
	}
	return current.Session
}

func (n *testNode) setSession(to session) {
	n.t.Helper()
	var current claim
	if err := json.Unmarshal([]byte(n.read("bin/"+testPlugin+".claim")), &current); err != nil {
		n.t.Fatal(err)
	}
	current.Session = to
	data, err := json.Marshal(current)
	if err != nil {
		n.t.Fatal(err)
	}
	n.write("bin/"+testPlugin+".claim", string(data))
}
