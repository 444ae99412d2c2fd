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

	"github.com/meshcni/meshcni/conflist"
)

var kills = flag.Int("kills", 10, "how many processes TestKilledAtRandom kills")

// TestKilledAtRandom kills (SIGKILL) daemons and uninstalls at random instants, while a reader loads the directory with libcni in a loop. What
// is left each time is put right by the next process.
func TestKilledAtRandom(t *testing.T) {
	t.Parallel()
	program := buildProgram(t)
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o644)
	stop := n.watchPrimary(func([]byte) error { return nil })
	began := time.Now()
	first, _ := n.startProgram(program)
	install := time.Since(began)
	signalAndWait(t, first, syscall.SIGTERM, 0)
	for i := range *kills {
		if i%2 == 0 { // the network's agent starts anew
			n.write(n.runDirParent(), "new", bridge, 0o644)
			mustRename(t, filepath.Join(n.runDirParent(), "new"), filepath.Join(n.netDir, "10-bridge.conf"))
		}
		n.killAtRandom(program, install, i%3 == 2)
		if i%4 == 3 {
			n.mustRun(program, "uninstall")
			if diff := cmp.Diff(map[string]string{"10-bridge.conf": "-rw-r--r-- " + bridge}, n.files(n.netDir)); diff != "" {
				t.Fatalf("kill %d, then uninstalled (-want +got):\n%s", i, diff)
			}
			continue
		}
		p, log := n.startProgram(program)
		signalAndWait(t, p, syscall.SIGTERM, 0)
		n.wantOnly("10-bridge.conflist")
		n.wantPlugins("10-bridge.conflist", "bridge", "istio-cni")
		n.wantPresent("istio-cni", "istio-cni.claim", "istio-cni-kubeconfig")
		if t.Failed() {
			t.Fatalf("kill %d; the next process said:\n%s", i, log)
		}
	}
	n.mustRun(program, "uninstall")
	n.wantOnly("10-bridge.conf")
	if got := n.read(n.netDir, "10-bridge.conf"); got != bridge {
		t.Errorf("in the end there is\n%s", got)
	}
	t.Logf("%d kills within %v; %d good loads", *kills, install, stop())
}

// killAtRandom starts a daemon, or an uninstall, and kills it at some time before it would be ready.
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
	command.Wait() //nolint:errcheck // it was killed
}

func (n *testNode) mustRun(program string, args ...string) {
	n.t.Helper()
	command := exec.Command(program, args...)
	command.Env = environ(n.env)
	if output, err := command.CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %v\n%s", args, err, output)
	}
}

// TestRollingUpgrade has a newer version take the place of an older one, and of a revision with another owner, as rolling updates do, with and
// without both at once. A reader finds the plugin in the chain, and the plugin itself, at every instant.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o644)
	n.write(n.sourceDir, "istio-cni", "plugin 0", 0o755)
	running := n.startReady()
	stop := n.watchPrimary(func(primary []byte) error {
		_, found, err := conflist.Find(primary, "istio-cni")
		if err == nil && !found {
			err = fmt.Errorf("the plugin isn't in it:\n%s", primary)
		}
		plugin, readErr := os.ReadFile(filepath.Join(n.binDir, "istio-cni"))
		if readErr == nil && !strings.HasPrefix(string(plugin), "plugin ") {
			readErr = fmt.Errorf("the plugin is %q", plugin)
		}
		return errors.Join(err, readErr)
	})
	for version := 1; version <= 6; version++ {
		if version%2 == 0 { // maxUnavailable: the old one ends first
			running.end()
		}
		next := *n
		next.sourceDir, next.env = t.TempDir(), maps.Clone(n.env)
		next.write(next.sourceDir, "istio-cni", fmt.Sprint("plugin ", version), 0o755)
		next.env["CNI_BIN_SOURCE_DIR"], next.env["EXCLUDE_NAMESPACES"] = next.sourceDir, fmt.Sprint("version-", version)
		if version%3 == 0 { // another revision of the mesh
			next.env["POD_NAMESPACE"], next.env["POD_NAME"] = "canary", "istio-cni-node-canary-bcdfg"
		}
		newer := next.startReady()
		if version%2 == 1 {
			running.end()
		}
		running = newer
		if got := n.read(n.binDir, "istio-cni"); got != fmt.Sprint("plugin ", version) {
			t.Errorf("version %d: the plugin is %q", version, got)
		}
	}
	running.end()
	t.Logf("%d good loads", stop())
	n.mustUninstall()
	n.wantOnly("10-bridge.conf")
}
