// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/interception/podsource"
	"github.com/meshcni/meshcni/internal/spool"
	"github.com/meshcni/meshcni/internal/testing/testlog"
)

// startOverlapping runs two daemons on a node, as a rolling update with maxSurge does, until the
// newer one keeps the node.
func startOverlapping(t *testing.T, n *testNode) (newer *exec.Cmd, oldLog *testlog.Log) {
	t.Helper()
	program := build(t, installCNI)
	_, oldLog = n.startProgram(program)
	update := *n
	update.sourceDir, update.env = t.TempDir(), maps.Clone(n.env)
	update.write(update.sourceDir, "istio-cni", "the newer plugin", 0o755)
	update.env["CNI_BIN_SOURCE_DIR"] = update.sourceDir
	newer, _ = update.startProgram(program)
	if !oldLog.Await(patience, func() bool { return strings.Contains(oldLog.String(), "writes nothing until") }) {
		t.Fatalf("the older daemon doesn't stand back:\n%s", oldLog)
	}
	if !n.answers() {
		t.Error("the newer daemon doesn't answer")
	}
	return newer, oldLog
}

// answers reports whether plugins reach a daemon at both sockets.
func (n *testNode) answers() bool {
	if _, err := (podsource.Agent{RunDir: n.runDir}).Status(n.t.Context()); err != nil {
		return false
	}
	connection, err := net.Dial("unix", filepath.Join(n.runDir, spool.IstioLogSocket))
	return err == nil && connection.Close() == nil
}

// TestPluginsAreAnsweredAfterARollback uses only the sockets: the older daemon listens again by
// itself.
func TestPluginsAreAnsweredAfterARollback(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	newer, oldLog := startOverlapping(t, n)
	signalAndWait(t, newer, syscall.SIGTERM, 0)
	if !oldLog.Await(patience, n.answers) {
		t.Errorf("plugins are not answered after the newer daemon has left:\n%s", oldLog)
	}
	if text := oldLog.String(); !strings.Contains(text, "this one is in charge of the node again") {
		t.Errorf("the older daemon doesn't say that it keeps the node again:\n%s", text)
	}
}

// TestNodeIsKeptAfterANewerDaemonWasKilled has no next process of the newer daemon begin: the older
// one restores its plugin by itself.
func TestNodeIsKeptAfterANewerDaemonWasKilled(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	newer, oldLog := startOverlapping(t, n)
	n.until("the newer plugin is there", n.binDir, func() bool { return n.read(n.binDir, "istio-cni") == "the newer plugin" })
	signalAndWait(t, newer, syscall.SIGKILL, -1)
	if !oldLog.Await(patience, func() bool { return strings.Contains(oldLog.String(), "this one is in charge of the node again") }) {
		t.Fatalf("the older daemon doesn't keep the node:\n%s", oldLog)
	}
	n.until("the older plugin is there", n.binDir, func() bool { return n.read(n.binDir, "istio-cni") == "the plugin" })
}

// TestPluginsAreAnsweredAfterANewerDaemonWasKilled: at first the node stays the newer daemon's, as
// its next process may begin. Until then the older one answers, after a request for its readiness.
func TestPluginsAreAnsweredAfterANewerDaemonWasKilled(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	newer, oldLog := startOverlapping(t, n)
	signalAndWait(t, newer, syscall.SIGKILL, -1)
	if n.answers() {
		t.Fatal("somebody answers before the older daemon was asked")
	}
	address := regexp.MustCompile(`health=(\S+)`).FindStringSubmatch(oldLog.String())[1]
	status, body := get(t, "http://"+address+"/readyz")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "a newer daemon is in charge of this node") {
		t.Errorf("/readyz = %d %q", status, body)
	}
	if !oldLog.Await(patience, n.answers) {
		t.Errorf("plugins are not answered:\n%s", oldLog)
	}
}
