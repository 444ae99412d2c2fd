// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/examples/internal/repairconf"
)

// settings loads the settings as the daemon does.
func (n *testNode) settings(args ...string) settings.Settings {
	n.t.Helper()
	env := n.environment(io.Discard)
	command := newCommand(env)
	if err := command.ParseFlags(args); err != nil {
		n.t.Fatal(err)
	}
	loaded, err := settings.Load(command, env.environ)
	if err != nil {
		n.t.Fatal(err)
	}
	return loaded.Settings
}

// repairConfig returns the configuration with which the node-watcher would be started.
func (w *podWatch) repairConfig(t *testing.T) (config repairconf.Config) {
	t.Helper()
	line, err := w.command("/run/w")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(line, func(arg string) bool { return strings.HasPrefix(arg, "-repair=") })
	if i < 0 {
		t.Fatalf("no repair in %q", line)
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line[i], "-repair=")), &config); err != nil {
		t.Fatal(err)
	}
	return config
}

// TestPodWatchUses settings that change before the node-watcher's first start and after it: each
// that repair works with has it started again, and none is lost.
func TestPodWatchUses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	delete(n.env, "EXCLUDE_NAMESPACES")
	n.env["NODE_NAME"], n.env["NODE_WATCHER"], n.env["MOUNTED_PROC_DIR"] = "n", "/node-watcher", t.TempDir()
	n.likeProc(n.env["MOUNTED_PROC_DIR"])
	const bank = "--exclude-namespaces=bank"
	template := func(values string) string { return `--cni-network-config={"type":"istio-cni",` + values + `}` }
	w, err := newPodWatch(n.environment(io.Discard), n.settings(), slog.New(slog.DiscardHandler), new(slog.LevelVar), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args    []string
		changed bool
		want    string
	}{
		{[]string{bank}, true, "bank auto istio-system/istio-cni-node"},
		{[]string{bank, "--plugin-timeout=20s"}, false, "bank auto istio-system/istio-cni-node"},
		{[]string{bank, "--dataplane=iptables"}, true, "bank iptables istio-system/istio-cni-node"},
		{[]string{bank, template(`"dataplane":"nftables"`)}, true, "bank nftables istio-system/istio-cni-node"},
		{[]string{bank, template(`"dataplane":"nftables","agent_name":"agent"`)}, true, "bank nftables istio-system/agent"},
		{[]string{template(`"dataplane":"nftables","agent_name":"agent","exclude_namespaces":["bank"]`)}, false, "bank nftables istio-system/agent"},
		{[]string{template(`"dataplane":"nftables","agent_name":"agent","exclude_namespaces":["shop"]`)}, true, "shop nftables istio-system/agent"},
	} {
		changed, err := w.use(n.settings(step.args...))
		if err != nil || changed != step.changed {
			t.Errorf("%q: to be started again: %v, %v", step.args, changed, err)
		}
		config := w.repairConfig(t)
		got := strings.Join(config.ExcludeNamespaces, ",") + " " + config.InPlace.Dataplane + " " + config.AgentNamespace + "/" + config.AgentName
		if got != step.want {
			t.Errorf("%q: repair has %q, want %q", step.args, got, step.want)
		}
	}
}

// TestPodWatchKeeps what it has if new settings cannot be used.
func TestPodWatchKeeps(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.env["NODE_NAME"], n.env["NODE_WATCHER"] = "n", "/node-watcher"
	w, err := newPodWatch(n.environment(io.Discard), n.settings("--exclude-namespaces=bank"), slog.New(slog.DiscardHandler), new(slog.LevelVar), nil)
	if err != nil {
		t.Fatal(err)
	}
	unusable := n.settings("--exclude-namespaces=shop")
	unusable.TemplateFile = filepath.Join(t.TempDir(), "missing")
	if changed, err := w.use(unusable); err == nil || changed {
		t.Errorf("to be started again: %v, %v", changed, err)
	}
	if got := w.repairConfig(t).ExcludeNamespaces; !slices.Equal(got, []string{"bank"}) {
		t.Errorf("repair leaves %q alone", got)
	}
}

// likeProc makes a directory look like a proc file system.
func (n *testNode) likeProc(proc string) {
	n.t.Helper()
	if err := os.Mkdir(filepath.Join(proc, "1"), 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.write(filepath.Join(proc, "1"), "cgroup", "", 0o644)
}
