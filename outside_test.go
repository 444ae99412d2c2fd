// SPDX-License-Identifier: Apache-2.0

//go:build unix

package meshcni_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/internal/filesystem"
)

// foreignNetwork is another program's configuration list, and foreignPlugin its binary.
const (
	foreignNetwork = "{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"net\",\n  \"plugins\": [ {\"type\": \"ptp\"} ]\n}\n"
	foreignPlugin  = "another program's"
)

// outsideNode is a node's file system for the daemon of docs/importing.md, which is built in a
// module outside this one.
type outsideNode struct {
	t       *testing.T
	program string
	root    string
	watcher *fsnotify.Watcher
}

// newOutsideNode makes a node with a network, a plugin of another program and a service account.
func newOutsideNode(t *testing.T, program string) *outsideNode {
	t.Helper()
	n := &outsideNode{t: t, program: program, root: t.TempDir()}
	for _, directory := range []string{"etc/cni/net.d", "opt/cni/bin", "var/lib/cni", "run", "account", "source"} {
		if err := os.MkdirAll(n.in(directory), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	n.write("etc/cni/net.d/10-net.conflist", foreignNetwork)
	n.write("opt/cni/bin/ptp", foreignPlugin)
	n.write("account/token", "secret")
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	n.write("account/ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	n.write("source/linkmesh-cni", "version 1")
	var err error
	if n.watcher, err = fsnotify.NewBufferedWatcher(10_000); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.watcher.Close() })
	for _, directory := range []string{"etc/cni/net.d", "opt/cni/bin", "run"} {
		if err := n.watcher.Add(n.in(directory)); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (n *outsideNode) in(name string) string { return filepath.Join(n.root, filepath.FromSlash(name)) }

func (n *outsideNode) write(name, text string) {
	n.t.Helper()
	if err := os.WriteFile(n.in(name), []byte(text), 0o755); err != nil { //nolint:gosec // some of the files are programs
		n.t.Fatal(err)
	}
}

// command returns the daemon's command, with arguments after those for the node's directories.
func (n *outsideNode) command(args ...string) *exec.Cmd {
	command := exec.CommandContext(n.t.Context(), n.program, append([]string{
		"-host", n.root, "-run", n.in("run"), "-account", n.in("account"), "-source", n.in("source"),
	}, args...)...)
	command.Env = append(command.Environ(), "KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443")
	return command
}

func (n *outsideNode) do(args ...string) {
	n.t.Helper()
	if output, err := n.command(args...).CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %v\n%s", args, err, output)
	}
}

// start starts a daemon, which ends with the test at the latest.
func (n *outsideNode) start(args ...string) *exec.Cmd {
	n.t.Helper()
	daemon := n.command(args...)
	var said bytes.Buffer
	daemon.Stdout, daemon.Stderr = &said, &said
	if err := daemon.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		daemon.Process.Kill() //nolint:errcheck // it has usually ended already
		daemon.Wait()         //nolint:errcheck // likewise
		if n.t.Failed() {
			n.t.Logf("%v said:\n%s", args, &said)
		}
	})
	return daemon
}

func (n *outsideNode) end(daemon *exec.Cmd, by syscall.Signal) {
	n.t.Helper()
	if err := daemon.Process.Signal(by); err != nil {
		n.t.Fatal(err)
	}
	if err := daemon.Wait(); (err != nil) != (by == syscall.SIGKILL) {
		n.t.Errorf("the daemon ended by %v: %v", by, err)
	}
}

// until waits for a condition, which it checks whenever a file of the node changes.
func (n *outsideNode) until(what string, holds func() bool) {
	n.t.Helper()
	const patience = 2 * time.Minute
	patient, stop := context.WithTimeout(n.t.Context(), patience)
	defer stop()
	for !holds() {
		select {
		case <-n.watcher.Events:
		case err := <-n.watcher.Errors:
			n.t.Fatal(err)
		case <-patient.Done():
			n.t.Fatalf("still not: %s; what is there:\n%v, %v", what, n.files(), n.chained())
		}
	}
}

// marker is the uninstall marker.
const marker = "opt/cni/bin/linkmesh-cni.uninstalled"

// files returns the files to compare. It skips the claim and the uninstall marker, which contain
// times, and temporary files in the run directory, where a killed process or a plugin may have been
// writing.
func (n *outsideNode) files() map[string]string {
	n.t.Helper()
	found := map[string]string{}
	for _, directory := range []string{"etc/cni/net.d", "opt/cni/bin", "run"} {
		entries, err := os.ReadDir(n.in(directory))
		if err != nil {
			n.t.Fatal(err)
		}
		for _, entry := range entries {
			name := directory + "/" + entry.Name()
			if directory == "run" && filesystem.IsTemporary(name) || name == marker || strings.HasSuffix(name, ".claim") {
				continue
			}
			if text, err := os.ReadFile(n.in(name)); err == nil {
				// The entry names the run directory.
				found[name] = strings.ReplaceAll(string(text), n.root, "ROOT")
			}
		}
	}
	return found
}

func (n *outsideNode) want(when string, want map[string]string) {
	n.t.Helper()
	if diff := cmp.Diff(want, n.files()); diff != "" {
		n.t.Fatalf("%s (-want +got):\n%s", when, diff)
	}
}

// chained returns an error if a runtime cannot load the network, or if the plugin that it names is
// wrong.
func (n *outsideNode) chained() error {
	files, err := libcni.ConfFiles(n.in("etc/cni/net.d"), []string{".conf", ".conflist", ".json"})
	if err != nil || len(files) != 1 {
		return fmt.Errorf("the configurations are %v: %w", files, err)
	}
	list, err := libcni.ConfListFromFile(files[0])
	if err != nil {
		return err
	}
	if len(list.Plugins) != 2 || list.Plugins[0].Network.Type != "ptp" || list.Plugins[1].Network.Type != "linkmesh-cni" {
		return fmt.Errorf("the list is %s", list.Bytes)
	}
	plugin, err := os.ReadFile(n.in("opt/cni/bin/linkmesh-cni"))
	if err == nil && !strings.HasPrefix(string(plugin), "version ") {
		err = fmt.Errorf("the plugin is %q", plugin)
	}
	return err
}

// TestInstallerOutside builds the daemon of docs/importing.md in a module outside this one.
func TestInstallerOutside(t *testing.T) {
	t.Parallel()
	program := newImporter(t).build(t, "docs/importing.md", "linkmesh-node")
	if t.Failed() {
		return
	}
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		killedOutside(t, program)
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		refusedOutside(t, program)
	})
	t.Run("upgraded", func(t *testing.T) {
		t.Parallel()
		upgradedOutside(t, program)
	})
}

// refusedOutside uses arguments that the plugin could not follow, or that the daemon does not know.
// Nothing is installed.
func refusedOutside(t *testing.T, program string) {
	t.Helper()
	n := newOutsideNode(t, program)
	bare := n.files()
	for want, args := range map[string][]string{
		`plugin_log_level is "trace"`:        {"-log-level=trace", "install"},
		`plugin_log_level is "\"info"`:       {`-log-level="info`, "install"},
		`cni_agent_run_dir is "run"`:         {"-run=run", "install"},
		`the argument "unistall" is unknown`: {"unistall"},
		`the argument "-run=/x" is unknown`:  {"--", "-run=/x"},
	} {
		output, err := n.command(args...).CombinedOutput()
		if err == nil || !strings.Contains(string(output), want) {
			t.Errorf("%v: got %v, %s; want %s", args, err, output, want)
		}
		n.want(fmt.Sprint(args), bare)
	}
	n.do("install")
	var list struct{ Plugins []map[string]any }
	if text, err := os.ReadFile(n.in("etc/cni/net.d/10-net.conflist")); err != nil || json.Unmarshal(text, &list) != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if got := list.Plugins[1]["cni_agent_run_dir"]; got != n.in("run") {
		t.Errorf("the plugin has run directory %v, want the daemon's", got)
	}
}

// killedOutside kills an install and an uninstall after each of their changes: kill -9 at the first
// event, the second and so on. The next process repairs everything, and other programs' files are
// never lost.
func killedOutside(t *testing.T, program string) {
	t.Helper()
	n := newOutsideNode(t, program)
	bare := n.files()
	n.do("install")
	installed := n.files()
	if err := n.chained(); err != nil {
		t.Fatal(err)
	}
	n.do("uninstall")
	n.want("uninstalled", bare)

	kills := map[string]int{}
	for _, deed := range []string{"install", "uninstall"} {
		for at, killed := 1, true; killed; at++ {
			n := newOutsideNode(t, program)
			if deed == "uninstall" {
				n.do("install")
			}
			killed = n.killAt(deed, at)
			kills[deed]++
			if got := n.files(); got["opt/cni/bin/ptp"] != foreignPlugin || !strings.Contains(got["etc/cni/net.d/10-net.conflist"], `{"type": "ptp"}`) {
				t.Fatalf("%s, killed at change %d, lost what is another program's: %v", deed, at, got)
			}
			n.do("install")
			n.want(fmt.Sprintf("%s, killed at change %d, and installed", deed, at), installed)
			n.do("uninstall")
			n.want(fmt.Sprintf("%s, killed at change %d, and uninstalled", deed, at), bare)
			if entries, err := os.ReadDir(n.in("run")); err != nil || len(entries) > 0 {
				t.Fatalf("%s, killed at change %d, and uninstalled: the run directory has %v, %v", deed, at, entries, err)
			}
		}
	}
	t.Logf("%v kills", kills)
}

// killAt runs a command, and kills it after this number of changes to the node. It returns false if
// the command ended before.
func (n *outsideNode) killAt(deed string, changes int) bool {
	n.t.Helper()
	for len(n.watcher.Events) > 0 {
		<-n.watcher.Events
	}
	process := n.command(deed)
	if err := process.Start(); err != nil {
		n.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	for ; changes > 0; changes-- {
		select {
		case err := <-ended:
			if err != nil {
				n.t.Errorf("%s: %v", deed, err)
			}
			return false
		case <-n.watcher.Events:
		}
	}
	if err := process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		n.t.Fatal(err)
	}
	return <-ended != nil
}

// upgradedOutside has a newer version take over from a running one. A reader finds a valid network
// and a plugin at every instant, even if the newer version is killed.
func upgradedOutside(t *testing.T, program string) {
	t.Helper()
	n := newOutsideNode(t, program)
	old := n.start()
	n.until("installed", func() bool { return n.chained() == nil })
	stop, looked := make(chan struct{}), make(chan int)
	go func() {
		looks := 0
		defer func() { looked <- looks }()
		for ; ; looks++ {
			select {
			case <-stop:
				return
			default:
				if err := n.chained(); err != nil {
					t.Errorf("after %d good looks: %v", looks, err)
					return
				}
			}
		}
	}()
	n.write("source/linkmesh-cni.new", "version 2")
	newSource := n.in("newer")
	if err := errors.Join(os.Mkdir(newSource, 0o750), os.Rename(n.in("source/linkmesh-cni.new"), filepath.Join(newSource, "linkmesh-cni"))); err != nil {
		t.Fatal(err)
	}
	taken := func() bool {
		files := n.files()
		return files["opt/cni/bin/linkmesh-cni"] == "version 2" && strings.Contains(files["etc/cni/net.d/10-net.conflist"], `"debug"`)
	}
	newer := n.start("-source", newSource, "-log-level", "debug")
	n.until("the newer version has taken over", taken)
	n.end(old, syscall.SIGTERM)
	n.end(newer, syscall.SIGKILL)
	newer = n.start("-source", newSource, "-log-level", "debug")
	n.write("opt/cni/bin/linkmesh-cni.other", "version 0")
	if err := os.Rename(n.in("opt/cni/bin/linkmesh-cni.other"), n.in("opt/cni/bin/linkmesh-cni")); err != nil {
		t.Fatal(err)
	}
	n.until("the version that follows the killed one keeps the node", taken)
	n.end(newer, syscall.SIGTERM)
	if !taken() {
		t.Error("the end of a version has changed the node")
	}
	close(stop)
	t.Logf("%d good looks", <-looked)
	n.do("uninstall")
	files := n.files()
	if files["etc/cni/net.d/10-net.conflist"] != foreignNetwork || files["opt/cni/bin/ptp"] != foreignPlugin {
		t.Errorf("uninstalled: %v", files)
	}
	if _, err := os.Stat(n.in("opt/cni/bin/linkmesh-cni")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the plugin is there still: %v", err)
	}
}
