// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// command runs a command of the program, and returns its output.
func (n *testNode) command(code int, args ...string) (stdout, stderr string) {
	n.t.Helper()
	var out, errors bytes.Buffer
	env := n.environment(&errors, args...)
	env.stdout = &out
	if got := run(context.Background(), env); got != code {
		n.t.Errorf("%v: exit code %d, want %d\n%s%s", args, got, code, &out, &errors)
	}
	if text := out.String() + errors.String(); strings.Contains(text, "token-") {
		n.t.Errorf("%v prints a token:\n%s", args, text)
	}
	return out.String(), errors.String()
}

// states returns those of the findings, by file.
func (n *testNode) states(code int) map[string]string {
	n.t.Helper()
	out, _ := n.command(code, "status", "-o", "json")
	var report nodeStatus
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		n.t.Fatal(err)
	}
	states := map[string]string{}
	for _, f := range report.Findings {
		states[f.Part+" "+filepath.Base(f.Path)] = string(f.State)
	}
	return states
}

func TestStatus(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	want := map[string]string{"binaries istio-cni": "missing", "kubeconfig istio-cni-kubeconfig": "missing", "config .": "waiting"}
	if diff := cmp.Diff(want, n.states(exitNotRight)); diff != "" {
		t.Errorf("an empty node (-want +got):\n%s", diff)
	}
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.startReady()
	right := map[string]string{"binaries istio-cni": "ok", "kubeconfig istio-cni-kubeconfig": "ok", "config 10-calico.conflist": "ok"}
	if diff := cmp.Diff(right, n.states(exitOK)); diff != "" {
		t.Errorf("installed (-want +got):\n%s", diff)
	}
	if out, _ := n.command(exitOK, "status"); !strings.Contains(out, "at work on this node") || !strings.Contains(out, "in 10-calico.conflist") {
		t.Errorf("status of a node with a daemon:\n%s", out)
	}
	p.end()
	n.write(n.binDir, "istio-cni", "another one", 0o755)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.rotateToken("token-2")
	want = map[string]string{"binaries istio-cni": "differs", "kubeconfig istio-cni-kubeconfig": "differs", "config 10-calico.conflist": "missing"}
	if diff := cmp.Diff(want, n.states(exitNotRight)); diff != "" {
		t.Errorf("spoilt (-want +got):\n%s", diff)
	}
	n.write(n.netDir, "10-calico.conflist", "{", 0o644)
	if err := os.RemoveAll(n.sourceDir); err != nil {
		t.Fatal(err)
	}
	n.remove(n.accountDir, "token")
	want = map[string]string{"binaries .": "failed", "kubeconfig istio-cni-kubeconfig": "failed", "config .": "waiting"}
	if diff := cmp.Diff(want, n.states(exitNotRight)); diff != "" {
		t.Errorf("without anything to compare with (-want +got):\n%s", diff)
	}
}

func TestStatusOfAnUninstalledPlugin(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.startReady().end()
	n.mustUninstall()
	out, _ := n.command(exitNotRight, "status")
	for _, want := range []string{"none at work on this node", "nothing is recorded as installed", "lets every pod pass"} {
		if !strings.Contains(out, want) {
			t.Errorf("status lacks %q:\n%s", want, out)
		}
	}
}

func TestInstallOnce(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	_, said := n.command(exitNotRight, "install")
	if !strings.Contains(said, "waiting for the cluster's network plugin") {
		t.Errorf("without a network:\n%s", said)
	}
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	before := n.files(n.netDir)
	out, _ := n.command(exitOK, "install", "--dry-run")
	if want := "write  " + filepath.Join(n.netDir, "10-calico.conflist"); !strings.Contains(out, want) {
		t.Errorf("dry run:\n%s\nwant %q", out, want)
	}
	if diff := cmp.Diff(before, n.files(n.netDir)); diff != "" {
		t.Errorf("a dry run changed (-before +after):\n%s", diff)
	}
	var report stepsReport
	out, _ = n.command(exitOK, "install", "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Error != "" || report.DryRun {
		t.Fatalf("%v\n%s", err, out)
	}
	if last := report.Steps[len(report.Steps)-1]; last.File != filepath.Join(n.netDir, "10-calico.conflist") {
		t.Errorf("last step: %+v", last)
	}
	n.wantPlugins("10-calico.conflist", "calico", "portmap", "istio-cni")
	if out, _ := n.command(exitOK, "install", "--dry-run"); out != "nothing to do\n" {
		t.Errorf("dry run after it:\n%s", out)
	}
	if out, _ := n.command(exitOK, "status"); !strings.Contains(out, "none at work") {
		t.Errorf("status:\n%s", out)
	}
	n.env["MOUNTED_CNI_BIN_DIR"] = filepath.Join(n.runDirParent(), "none")
	if _, said := n.command(exitFailure, "install"); !strings.Contains(said, "mount the node's directory there") {
		t.Errorf("without a directory:\n%s", said)
	}
}

func TestUninstallDryRun(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o644)
	n.write(n.netDir, "20-calico.conflist", calico, 0o644)
	n.startReady().end()
	net, bin, run := n.files(n.netDir), n.files(n.binDir), n.files(n.runDir)
	var report stepsReport
	out, _ := n.command(exitOK, "uninstall", "--dry-run", "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range report.Steps {
		got = append(got, strings.TrimSpace(s.Step+" "+filepath.Base(s.File)+" "+s.Reason))
	}
	want := []string{
		"edit 10-bridge.conf as it was before it became a list", "remove 10-bridge.conflist it was made of 10-bridge.conf", "remove istio-cni-kubeconfig the plugin's kubeconfig, with a token in it",
		"remove agent.sock a daemon's socket, on which no program listens", "remove log.sock a daemon's socket, on which no program listens",
		"remove istio-cni",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	n.cachePod("c1", n.read(n.netDir, "10-bridge.conflist"))
	if out, _ := n.command(exitOK, "uninstall", "--dry-run"); !strings.Contains(out, "1 running pods need them for their removal") {
		t.Errorf("with a pod:\n%s", out)
	}
	for directory, before := range map[string]map[string]string{n.netDir: net, n.binDir: bin, n.runDir: run} {
		if diff := cmp.Diff(before, n.files(directory)); diff != "" {
			t.Errorf("a dry run changed %s (-before +after):\n%s", directory, diff)
		}
	}
	out, _ = n.command(exitOK, "uninstall", "-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Error != "" || len(report.Steps) < 3 {
		t.Errorf("%v\n%s", err, out)
	}
	n.wantOnly("10-bridge.conf", "20-calico.conflist")
	if out, _ := n.command(exitOK, "uninstall", "--dry-run"); !strings.Contains(out, "keep") {
		t.Errorf("after it:\n%s", out)
	}
}
