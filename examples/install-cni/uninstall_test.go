// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// present returns which of our files are on the node.
func (n *testNode) present() map[string]bool {
	n.t.Helper()
	present := map[string]bool{}
	for _, path := range []string{
		filepath.Join(n.binDir, "istio-cni"), filepath.Join(n.binDir, "istio-cni.claim"), filepath.Join(n.binDir, "istio-cni.uninstalled"),
		filepath.Join(n.runDir, "istio-cni-kubeconfig"),
	} {
		if _, err := os.Lstat(path); err == nil {
			present[filepath.Base(path)] = true
		}
	}
	return present
}

func (n *testNode) wantPresent(names ...string) {
	n.t.Helper()
	want := map[string]bool{}
	for _, name := range names {
		want[name] = true
	}
	if diff := cmp.Diff(want, n.present()); diff != "" {
		n.t.Errorf("files of ours (-want +got):\n%s", diff)
	}
}

// cachePod writes libcni's cache entry of a pod's network.
func (n *testNode) cachePod(container, config string) {
	n.t.Helper()
	n.cachePodIn(n.cacheDir, container, config)
}

func (n *testNode) cachePodIn(cache, container, config string) {
	n.t.Helper()
	results := filepath.Join(cache, "results")
	if err := os.MkdirAll(results, 0o700); err != nil {
		n.t.Fatal(err)
	}
	entry, err := json.Marshal(map[string]any{"kind": "cniCacheV1", "containerId": container, "config": []byte(config), "ifName": "eth0"})
	if err != nil {
		n.t.Fatal(err)
	}
	n.write(results, "k8s-pod-network-"+container+"-eth0", string(entry), 0o600)
}

func TestUninstall(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o640)
	n.write(n.sourceDir, "fresh", "x", 0o755)
	n.write(n.sourceDir, "bridge", "newer", 0o755)
	n.write(n.binDir, "bridge", "the node's", 0o755)
	before := n.files(n.netDir)
	n.startReady().end()
	n.wantPresent("istio-cni", "istio-cni.claim", "istio-cni-kubeconfig")

	n.mustUninstall()
	n.wantPresent("istio-cni.uninstalled")
	if diff := cmp.Diff(before, n.files(n.netDir)); diff != "" {
		t.Errorf("the configuration directory (-want +got):\n%s", diff)
	}
	files := n.files(n.binDir)
	if files["fresh"] != "" || files["bridge"] == "" {
		t.Errorf("binaries after the uninstall: %v; want those gone that weren't there before", files)
	}
	var marker struct{ Owner, Version, Time string }
	if err := json.Unmarshal([]byte(n.read(n.binDir, "istio-cni.uninstalled")), &marker); err != nil ||
		marker.Owner != "istio-system/istio-cni-node" || marker.Version != "v1.2.3-test" || marker.Time == "" || !strings.HasPrefix(files["istio-cni.uninstalled"], "-rw-------") {
		t.Errorf("marker %s, %v", files["istio-cni.uninstalled"], err)
	}

	again := n.files(n.binDir)
	if output := n.mustUninstall(); !strings.Contains(output, "nothing is installed") {
		t.Errorf("a second uninstall says:\n%s", output)
	}
	if diff := cmp.Diff(again, n.files(n.binDir)); diff != "" {
		t.Errorf("a second uninstall changed something (-want +got):\n%s", diff)
	}
}

func TestInstallAfterUninstall(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o640)
	n.startReady().end()
	n.mustUninstall()
	n.startReady().end()
	n.wantPresent("istio-cni", "istio-cni.claim", "istio-cni-kubeconfig")
	n.mustUninstall()
	n.wantOnly("10-bridge.conf")
}

func TestUninstallOnExit(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o640)
	before := n.files(n.netDir)
	n.startReady("--uninstall-on-exit").end()
	n.wantPresent("istio-cni.uninstalled")
	if diff := cmp.Diff(before, n.files(n.netDir)); diff != "" {
		t.Errorf("the configuration directory (-want +got):\n%s", diff)
	}
}

func TestUninstallOnExitLeavesTheNodeToASuccessor(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o640)
	old := n.startReady("--uninstall-on-exit")
	n.startReady()
	old.end()
	n.wantPresent("istio-cni", "istio-cni.claim", "istio-cni-kubeconfig")
	if !n.hasEntry("10-calico.conflist") {
		t.Error("the entry is gone")
	}
}

func TestUninstallIsRefusedWhileADaemonRuns(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o640)
	n.startReady()
	code, output := n.uninstall()
	if code != exitFailure || !strings.Contains(output, "daemon is running") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
	if !n.hasEntry("10-calico.conflist") {
		t.Error("the entry is gone")
	}
}

func TestUninstallGoesOnWithSettingsThatCannotInstall(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.startReady().end()
	for name, value := range map[string]string{
		"CHAINED_CNI_PLUGIN": "no", "AMBIENT_ENABLED": "perhaps", "CNI_CONF_NAME": "../x.conf", "KUBECONFIG_MODE": "0777",
		"LOG_OUTPUT_LEVEL": "loud", "POD_NAMESPACE": "no such",
	} {
		n.env[name] = value
	}
	output := n.mustUninstall()
	for _, want := range []string{"CHAINED_CNI_PLUGIN", "AMBIENT_ENABLED", "CNI_CONF_NAME", "KUBECONFIG_MODE", "LOG_OUTPUT_LEVEL", "POD_NAMESPACE"} {
		if !strings.Contains(output, want) {
			t.Errorf("no warning names %s:\n%s", want, output)
		}
	}
	if got := n.read(n.netDir, "10-calico.conflist"); got != calico {
		t.Errorf("after the uninstall:\n%s", got)
	}
	if note := n.read(n.binDir, "istio-cni.uninstalled"); strings.Contains(note, "no such") {
		t.Errorf("a bad setting reached the marker:\n%s", note)
	}
}

func TestUninstallOfNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o640)
	if output := n.mustUninstall(); !strings.Contains(output, "nothing is installed") {
		t.Errorf("output:\n%s", output)
	}
	n.wantPresent()
	if err := os.RemoveAll(n.binDir); err != nil {
		t.Fatal(err)
	}
	if code, output := n.uninstall(); code != exitFailure || !strings.Contains(output, "mount the node's directory") {
		t.Errorf("without the binary directory: exit code %d:\n%s", code, output)
	}
}

func TestUninstallWithoutAClaim(t *testing.T) {
	t.Parallel()
	for name, claim := range map[string]string{"missing": "", "garbage": "{", "newer": `{"format": 99}`, "hostile": `{"format":1,"binaries":["../net.d/10-calico.conflist"]}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-calico.conflist", calico, 0o640)
			before := n.files(n.netDir)
			n.startReady().end()
			n.write(n.netDir, "99-other.conflist", strings.Replace(calico, "[", "["+ours+",", 1), 0o600)
			n.write(n.netDir, "98-broken.conflist", notJSON, 0o600)
			if n.write(n.binDir, "istio-cni.claim", claim, 0o600); claim == "" {
				n.remove(n.binDir, "istio-cni.claim")
			}
			n.mustUninstall()
			n.wantPresent("istio-cni.uninstalled")
			n.wantPlugins("99-other.conflist", "calico", "portmap")
			if got := n.files(n.netDir)["10-calico.conflist"]; got != before["10-calico.conflist"] {
				t.Errorf("10-calico.conflist is now\n%s", got)
			}
		})
	}
}

func TestUninstallKeepsWhatPodsNeed(t *testing.T) {
	t.Parallel()
	withUs := strings.Replace(calico, "[", "["+ours+",", 1)
	for name, test := range map[string]struct {
		prepare func(n *testNode)
		kept    bool
		purge   bool
	}{
		"pods with it": {func(n *testNode) { n.cachePod("a", calico); n.cachePod("b", withUs) }, true, false},
		"pods of Multus with it": {func(n *testNode) {
			n.cachePod("a", calico)
			n.cachePodIn(filepath.Join(n.cacheDir, "multus"), "a", withUs)
		}, true, false},
		"pods of Multus without it": {func(n *testNode) {
			n.cachePodIn(filepath.Join(n.cacheDir, "multus"), "a", calico)
		}, false, false},
		"purged":           {func(n *testNode) { n.cachePod("a", withUs) }, true, true},
		"pods without it":  {func(n *testNode) { n.cachePod("a", calico) }, false, false},
		"unreadable entry": {func(n *testNode) { n.cachePod("a", "{ istio-cni") }, true, false},
		"other entry": {func(n *testNode) {
			n.cachePod("a", "")
			n.write(filepath.Join(n.cacheDir, "results"), "x", "{}", 0o600)
		}, false, false},
		"unreadable other": {func(n *testNode) {
			n.cachePod("a", calico)
			n.write(filepath.Join(n.cacheDir, "results"), "x", "istio-cni", 0o600)
		}, true, false},
		"cache isn't mounted": {func(n *testNode) { n.remove("", n.cacheDir) }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-calico.conflist", calico, 0o640)
			n.startReady().end()
			test.prepare(n)
			output := n.mustUninstall()
			if !test.kept {
				n.wantPresent("istio-cni.uninstalled")
				return
			}
			n.wantPresent("istio-cni", "istio-cni.claim", "istio-cni.uninstalled")
			if !strings.Contains(output, "binaries stay") || n.read(n.netDir, "10-calico.conflist") != calico {
				t.Errorf("output:\n%s", output)
			}
			if test.purge {
				n.mustUninstall("--purge")
				n.wantPresent()
				return
			}
			// The pods are gone: a later uninstall continues.
			if err := os.RemoveAll(n.cacheDir); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(n.cacheDir, 0o755); err != nil {
				t.Fatal(err)
			}
			n.mustUninstall()
			n.wantPresent("istio-cni.uninstalled")
		})
	}
}

func TestUninstallGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o640)
	n.startReady().end()
	n.write(n.netDir, "00-broken.conflist", `{"plugins": [{"type": "istio-cni"}`, 0o600)
	n.write(n.netDir, "01-broken.conflist", `{"plugins": [{"type": "istio-cni"},,`, 0o600)
	code, output := n.uninstall()
	if code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		"00-broken.conflist", "01-broken.conflist", "configuration  failed", "marker         done", "kubeconfig     done",
		"binaries       kept       a broken configuration names the plugin", "claim          kept",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("the output doesn't say %q:\n%s", want, output)
		}
	}
	if got := n.read(n.netDir, "10-calico.conflist"); got != calico {
		t.Errorf("the readable list still has us:\n%s", got)
	}
	n.wantPresent("istio-cni", "istio-cni.claim", "istio-cni.uninstalled")
	n.remove(n.netDir, "00-broken.conflist")
	n.remove(n.netDir, "01-broken.conflist")
	n.mustUninstall()
	n.wantPresent("istio-cni.uninstalled")
}

func TestUninstallRemovesLeftoversOfAKilledProcess(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o640)
	n.startReady().end()
	for _, directory := range []string{n.netDir, n.binDir, n.runDir} {
		n.write(directory, "x.tmp.0123456789abcdef", "half", 0o600)
	}
	n.mustUninstall()
	n.wantOnly("10-calico.conflist")
	if bin, run := n.files(n.binDir), n.files(n.runDir); len(bin) != 1 || len(run) != 0 {
		t.Errorf("left: %v %v", bin, run)
	}
}

func TestUninstallNamesAStandaloneConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "YYY-istio-cni.conf", `{"name": "istio-cni", "type": "istio-cni"}`, 0o600)
	if code, output := n.uninstall(); code != exitFailure || !strings.Contains(output, "YYY-istio-cni.conf") || !strings.Contains(output, "remove the file") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
}

func TestUninstallKeepsWhatALinkedConfigurationNeeds(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o640)
	n.startReady().end()
	target := filepath.Join(n.runDirParent(), "linked")
	n.write(n.runDirParent(), "linked", strings.Replace(calico, "[", "["+ours+",", 1), 0o600)
	for name, leadsTo := range map[string]string{
		"20-linked.conflist": target, "21-nowhere.conflist": target + ".missing", "22-directory.conflist": n.runDir,
	} {
		if err := os.Symlink(leadsTo, filepath.Join(n.netDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	code, output := n.uninstall()
	if code != exitFailure || !strings.Contains(output, "20-linked.conflist: it is a symbolic link to "+target) || strings.Contains(output, "out of 21") ||
		strings.Contains(output, "out of 22") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
	// No uninstall marker: new pods use the plugin, and must not bypass the mesh.
	n.wantPresent("istio-cni", "istio-cni.claim", "istio-cni-kubeconfig")
	for _, want := range []string{"configuration  failed", "marker         not tried", "kubeconfig     not tried", "binaries       not tried"} {
		if !strings.Contains(output, want) {
			t.Errorf("the output doesn't say %q:\n%s", want, output)
		}
	}
	n.write(n.runDirParent(), "linked", calico, 0o600)
	n.mustUninstall()
	n.wantPresent("istio-cni.uninstalled")
}

func TestUninstallKeepsAListThatOthersChanged(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o640)
	n.startReady().end()
	list := n.read(n.netDir, "10-bridge.conflist")
	n.write(n.netDir, "10-bridge.conflist", strings.Replace(list, `"ipam"`, `"mtu": 1400, "ipam"`, 1), 0o640)
	if output := n.mustUninstall(); !strings.Contains(output, "another program has changed it") {
		t.Errorf("output:\n%s", output)
	}
	n.wantOnly("10-bridge.conflist")
	n.wantPlugins("10-bridge.conflist", "bridge")
}

func TestUninstallLeavesASingleThatIsBack(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o640)
	n.startReady().end()
	newer := strings.Replace(bridge, "rkt.kubernetes.io", "newer", 1)
	n.write(n.netDir, "10-bridge.conf", newer, 0o600)
	n.mustUninstall()
	if diff := cmp.Diff(map[string]string{"10-bridge.conf": "-rw------- " + newer}, n.files(n.netDir)); diff != "" {
		t.Errorf("the configuration directory (-want +got):\n%s", diff)
	}
}

func TestUninstallAfterThePrimaryWasRemoved(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o640)
	n.startReady().end()
	n.remove(n.netDir, "10-bridge.conflist")
	n.mustUninstall()
	n.wantOnly()
	n.wantPresent("istio-cni.uninstalled")
}

func TestUninstallRemovesAnOlderKubeconfig(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o640)
	n.startReady().end()
	older := n.runDir
	n.runDir = filepath.Join(n.runDirParent(), "other")
	n.env["CNI_AGENT_RUN_DIR"] = n.runDir
	n.mustUninstall()
	if files := n.files(older); len(files) > 0 {
		t.Errorf("left in the older run directory: %v", files)
	}
}

// TestClaim pins the claim's form: later versions must be able to read it.
func TestClaim(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o640)
	n.startReady()
	var claim map[string]any
	if err := json.Unmarshal([]byte(n.read(n.binDir, "istio-cni.claim")), &claim); err != nil {
		t.Fatal(err)
	}
	if text, _ := claim["since"].(string); text == "" {
		t.Error("the claim has no time")
	}
	delete(claim, "since")
	session, _ := claim["session"].(map[string]any)
	id, _ := session["id"].(string)
	delete(session, "id")
	if diff := cmp.Diff(map[string]any{"number": 1.0, "lock": "all", "marked": true}, session); diff != "" || len(id) < 26 {
		t.Errorf("session with ID %q (-want +got):\n%s", id, diff)
	}
	delete(claim, "session")
	var configs struct{ Configs []map[string]any }
	if err := json.Unmarshal([]byte(n.read(n.binDir, "istio-cni.claim")), &configs); err != nil || len(configs.Configs) != 1 {
		t.Fatalf("configs: %v, %v", configs, err)
	}
	config := configs.Configs[0]
	if text, _ := config["original"].(string); len(text) != 64 {
		t.Errorf("original = %q, want a SHA-256", text)
	}
	if text, _ := config["entry"].(string); len(text) != 64 {
		t.Errorf("entry = %q, want a SHA-256", text)
	}
	delete(config, "original")
	delete(config, "entry")
	delete(claim, "configs")
	want := map[string]any{
		"format": 1.0, "owner": "istio-system/istio-cni-node", "version": "v1.2.3-test", "binaries": []any{"istio-cni"},
		"kubeconfig": filepath.Join(n.runDir, "istio-cni-kubeconfig"),
	}
	wantConfig := map[string]any{
		"name":   "10-bridge.conflist",
		"lifted": map[string]any{"name": "10-bridge.conf", "content": base64.StdEncoding.EncodeToString([]byte(bridge))},
	}
	if diff := cmp.Diff(wantConfig, config); diff != "" {
		t.Errorf("config of the claim (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, claim); diff != "" {
		t.Errorf("claim (-want +got):\n%s", diff)
	}
}

// TestUninstallRemovesSockets of a daemon that has ended, but no socket that a program listens at,
// such as the next daemon.
func TestUninstallRemovesSockets(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.startReady().end()
	if err := os.Mkdir(filepath.Join(n.runDir, "node-watcher"), 0o700); err != nil {
		t.Fatal(err)
	}
	mustRename(t, filepath.Join(n.runDir, "agent.sock"), filepath.Join(n.runDir, "node-watcher", "agent.sock"))
	listener, err := net.Listen("unix", filepath.Join(n.runDir, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if code, output := n.uninstall("--dry-run"); code != exitOK || !strings.Contains(output, "log.sock") || !strings.Contains(output, "node-watcher/agent.sock") {
		t.Errorf("dry run: exit code %d\n%s", code, output)
	}
	n.mustUninstall()
	entries, err := os.ReadDir(n.runDir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "agent.sock" {
		t.Errorf("left %v, %v", entries, err)
	}
}
