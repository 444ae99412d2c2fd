// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/internal/testing/testlog"
)

// startProgram runs the program on a node until it is ready.
func (n *testNode) startProgram(program string, args ...string) (*exec.Cmd, *testlog.Log) {
	n.t.Helper()
	return n.startProgramBy((*exec.Cmd).Start, program, "msg=ready", args...)
}

// startProgramBy is startProgram with another way to start, and another text that ends the wait.
func (n *testNode) startProgramBy(start func(*exec.Cmd) error, program, until string, args ...string) (*exec.Cmd, *testlog.Log) {
	n.t.Helper()
	log := testlog.New()
	command := exec.Command(program, args...)
	command.Stdout, command.Stderr = log, log
	command.Env = append([]string{}, environ(n.env)...)
	if err := start(command); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { command.Process.Kill() }) //nolint:errcheck // it has usually ended already
	if !log.Await(patience, func() bool { return strings.Contains(log.String(), until) }) {
		n.t.Fatalf("the program doesn't say %q:\n%s", until, log)
	}
	return command, log
}

func TestProcess(t *testing.T) {
	t.Parallel()
	program := build(t, installCNI)
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o644)
	before := n.files(n.netDir)

	first, log := n.startProgram(program)
	signalAndWait(t, first, syscall.SIGTERM, 0)
	if !n.hasEntry("10-bridge.conflist") || !strings.Contains(log.String(), "stays in place") {
		t.Errorf("SIGTERM took the entry away:\n%s", log)
	}

	second, _ := n.startProgram(program)
	signalAndWait(t, second, syscall.SIGKILL, -1)
	if !n.hasEntry("10-bridge.conflist") {
		t.Error("SIGKILL took the entry away")
	}

	third, _ := n.startProgram(program, "--uninstall-on-exit")
	signalAndWait(t, third, syscall.SIGINT, 0)
	for name, content := range n.files(n.netDir) {
		if before[name] != content {
			t.Errorf("left behind: %s %s", name, content)
		}
	}
	n.wantOnly("10-bridge.conf")
	n.wantPresent("istio-cni.uninstalled")
}

func signalAndWait(t testing.TB, command *exec.Cmd, signal os.Signal, code int) {
	t.Helper()
	if err := command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	err := command.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := command.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d after %v, want %d", got, signal, code)
	}
}

// TestAReaderAlwaysFindsAValidConfiguration loads the directory as a runtime does, again and again,
// while configurations are installed, restored and uninstalled.
func TestAReaderAlwaysFindsAValidConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o644)
	stop := n.watchPrimary(func(network) error { return nil })
	for range 5 {
		p := n.startReady()
		n.write(n.runDirParent(), "new", bridge, 0o644)
		mustRename(t, filepath.Join(n.runDirParent(), "new"), filepath.Join(n.netDir, "10-bridge.conf"))
		n.until("the configuration is a list again", n.netDir, func() bool {
			_, single := n.files(n.netDir)["10-bridge.conf"]
			return !single && n.hasEntry("10-bridge.conflist")
		})
		p.end()
		n.mustUninstall()
	}
	t.Logf("%d good loads", stop())
}
