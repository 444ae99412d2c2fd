// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/internal/filesystem"
	"github.com/meshcni/meshcni/internal/testing/filesystemtest"
)

var (
	kills    = flag.Int("kills", 4, "how many processes TestKilledAtRandom kills in each mode")
	upgrades = flag.Int("upgrades", 6, "how many versions TestRollingUpgrade has follow each other in each mode")
)

// TestKilledAtRandom kills (SIGKILL) daemons and uninstalls at random instants, in each mode, while
// a reader loads the directory with libcni in a loop. The next process repairs what is left each
// time.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	program := build(t, installCNI)
	for mode := range installedFiles() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.env["INSTALL_MODE"] = mode
			networks := map[string]string{"10-calico.conflist": "-rw-r--r-- " + calico}
			if mode == "splice" { // which is harder if the file is renamed
				networks = map[string]string{"10-bridge.conf": "-rw-r--r-- " + bridge}
			}
			n.survive(program, networks)
		})
	}
}

// survive kills processes while a network agent rewrites its files from time to time.
func (n *testNode) survive(program string, networks map[string]string) {
	n.t.Helper()
	n.startAgent(networks)
	before := n.tree()
	stop := n.watchPrimary(func(network) error { return nil })
	began := time.Now()
	first, _ := n.startProgram(program)
	install := time.Since(began)
	signalAndWait(n.t, first, syscall.SIGTERM, 0)
	installed := n.tree()
	for i := range *kills {
		if i%2 == 0 {
			n.startAgent(networks)
		}
		n.killAtRandom(program, install, i%3 == 2)
		if i%4 == 3 {
			n.mustRun(program, "uninstall")
			n.wantTree(before, fmt.Sprintf("kill %d, then uninstalled", i))
			continue
		}
		p, log := n.startProgram(program)
		signalAndWait(n.t, p, syscall.SIGTERM, 0)
		n.wantTree(installed, fmt.Sprintf("kill %d, then started again", i))
		n.wantPresent("istio-cni", "istio-cni.claim", "istio-cni-kubeconfig")
		if n.t.Failed() {
			n.t.Fatalf("kill %d; the next process said:\n%s", i, log)
		}
	}
	n.mustRun(program, "uninstall")
	n.wantTree(before, "in the end")
	n.t.Logf("%d kills within %v; %d good loads", *kills, install, stop())
}

// startAgent restarts the network agent: it writes its files, whatever exists.
func (n *testNode) startAgent(networks map[string]string) {
	n.t.Helper()
	for name, shown := range networks {
		_, content, _ := strings.Cut(shown, " ")
		n.write(n.runDirParent(), "new", content, 0o644)
		mustRename(n.t, filepath.Join(n.runDirParent(), "new"), filepath.Join(n.netDir, name))
	}
}

// tree returns the configuration directory, without the temporary files of killed processes.
func (n *testNode) tree() filesystemtest.Tree {
	n.t.Helper()
	found, err := filesystemtest.Read(n.netDir)
	if err != nil {
		n.t.Fatal(err)
	}
	maps.DeleteFunc(found, func(name string, _ filesystemtest.File) bool { return filesystem.IsTemporary(filepath.Base(name)) })
	return found
}

func (n *testNode) wantTree(want filesystemtest.Tree, when string) {
	n.t.Helper()
	if diff := cmp.Diff(want, n.tree()); diff != "" {
		n.t.Fatalf("%s: the configuration directory (-want +got):\n%s", when, diff)
	}
}

// killAtRandom starts a daemon or an uninstall, and kills it at a random time before it would be
// ready.
func (n *testNode) killAtRandom(program string, within time.Duration, uninstall bool) {
	n.t.Helper()
	command := exec.Command(program)
	if uninstall {
		command.Args = append(command.Args, "uninstall")
	}
	command.Env = environ(n.env)
	if err := command.Start(); err != nil {
		n.t.Fatal(err)
	}
	<-time.After(time.Duration(rand.Int64N(int64(within))))
	if err := command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		n.t.Fatal(err)
	}
	command.Wait() //nolint:errcheck // the error is that it was killed
}

func (n *testNode) mustRun(program string, args ...string) {
	n.t.Helper()
	command := exec.Command(program, args...)
	command.Env = environ(n.env)
	if output, err := command.CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %v\n%s", args, err, output)
	}
}

// TestRollingUpgrade replaces a version by a newer one, and by a revision with another owner, as
// rolling updates do, with and without both at once, in each mode. A reader always finds the plugin
// in the configuration, and the plugin itself.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	for mode, file := range installedFiles() {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.env["INSTALL_MODE"] = mode
			if mode == "splice" {
				n.write(n.netDir, "10-bridge.conf", bridge, 0o644)
			} else {
				n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			}
			before := n.tree()
			n.write(n.sourceDir, "istio-cni", "plugin 0", 0o755)
			running := n.startReady()
			stop := n.watchPrimary(func(found network) error {
				if mode == "standalone" {
					var err error
					if found, err = load(filepath.Join(n.netDir, file)); err != nil {
						return err
					}
				}
				plugin, err := os.ReadFile(filepath.Join(n.binDir, "istio-cni"))
				if err == nil && !strings.HasPrefix(string(plugin), "plugin ") {
					err = fmt.Errorf("the plugin is %q", plugin)
				}
				return errors.Join(found.calls("istio-cni"), err)
			})
			for version := 1; version <= *upgrades; version++ {
				running = n.upgrade(running, version)
			}
			running.end()
			t.Logf("%d upgrades; %d good loads", *upgrades, stop())
			n.mustUninstall()
			n.wantTree(before, "uninstalled")
		})
	}
}

// upgrade starts a version and ends the previous one, in either order.
func (n *testNode) upgrade(running *process, version int) *process {
	n.t.Helper()
	if version%2 == 0 { // maxUnavailable: the old one ends first
		running.end()
	}
	next := *n
	next.sourceDir, next.env = n.t.TempDir(), maps.Clone(n.env)
	next.write(next.sourceDir, "istio-cni", fmt.Sprint("plugin ", version), 0o755)
	next.env["CNI_BIN_SOURCE_DIR"], next.env["EXCLUDE_NAMESPACES"] = next.sourceDir, fmt.Sprint("version-", version)
	if version%3 == 0 { // another revision of the mesh
		next.env["POD_NAMESPACE"], next.env["POD_NAME"] = "canary", "istio-cni-node-canary-bcdfg"
	}
	newer := next.startReady()
	if version%2 == 1 {
		running.end()
	}
	if got := n.read(n.binDir, "istio-cni"); got != fmt.Sprint("plugin ", version) {
		n.t.Errorf("version %d: the plugin is %q", version, got)
	}
	return newer
}
