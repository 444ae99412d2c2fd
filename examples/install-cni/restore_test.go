// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const ours = `{"type":"istio-cni","plugin_log_level":"stale"}`

func TestConfigurationIsRestored(t *testing.T) {
	t.Parallel()
	tests := map[string]func(n *testNode, path string){
		"overwritten": func(n *testNode, _ string) { n.write(n.netDir, "10-calico.conflist", calico, 0o644) },
		"replaced": func(n *testNode, path string) {
			n.write(n.runDirParent(), "new", calico, 0o644)
			mustRename(n.t, filepath.Join(n.runDirParent(), "new"), path)
		},
		"removed and written": func(n *testNode, _ string) {
			n.remove(n.netDir, "10-calico.conflist")
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
		},
		"truncated, then written": func(n *testNode, path string) {
			if err := os.Truncate(path, 0); err != nil {
				n.t.Fatal(err)
			}
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
		},
		"with an older entry": func(n *testNode, _ string) {
			n.write(n.netDir, "10-calico.conflist", strings.Replace(calico, "[", "["+ours+",", 1), 0o644)
		},
		"with two entries": func(n *testNode, _ string) {
			n.write(n.netDir, "10-calico.conflist", strings.Replace(calico, "[", "["+ours+","+ours+",", 1), 0o644)
		},
	}
	for name, tamper := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			n.startReady()
			good := n.read(n.netDir, "10-calico.conflist")
			path := filepath.Join(n.netDir, "10-calico.conflist")
			tamper(n, path)
			n.until("the entry is back", n.netDir, func() bool {
				data, err := os.ReadFile(path)
				return err == nil && strings.Count(string(data), `"type": "istio-cni"`)+strings.Count(string(data), `"type":"istio-cni"`) == 1 &&
					!strings.Contains(string(data), "stale")
			})
			// After the plugin that makes the interface.
			n.wantPlugins("10-calico.conflist", "calico", "portmap", "istio-cni")
			if got := n.read(n.netDir, "10-calico.conflist"); got != good && !strings.HasPrefix(name, "with") {
				t.Errorf("restored:\n%s\nwant:\n%s", got, good)
			}
		})
	}
}

func TestChangesOfOthersAreKept(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.startReady()
	newer := strings.Replace(calico, `"snat": true`, `"snat": false`, 1)
	n.write(n.netDir, "10-calico.conflist", newer, 0o644)
	n.until("the entry is back", n.netDir, func() bool { return n.hasEntry("10-calico.conflist") })
	p.end()
	n.mustUninstall()
	if got := n.read(n.netDir, "10-calico.conflist"); got != newer {
		t.Errorf("after the uninstall:\n%s\nwant what its owner wrote last:\n%s", got, newer)
	}
}

func TestPrimaryVanishesAndComesBack(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.startReady()
	n.remove(n.netDir, "10-calico.conflist")
	p.waitAnswer(http.StatusServiceUnavailable, "config: waiting")
	n.write(n.netDir, "20-other.conflist", calico, 0o644)
	p.waitReady()
	n.wantPlugins("20-other.conflist", "calico", "portmap", "istio-cni")
}

func TestBetterSortingPrimary(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ file, content, listed string }{
		"list":   {"05-cilium.conflist", calico, "05-cilium.conflist"},
		"single": {"05-bridge.conf", bridge, "05-bridge.conflist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			p := n.startReady()
			n.write(n.netDir, test.file, test.content, 0o600)
			n.until("the entry moves", n.netDir, func() bool {
				return n.hasEntry(test.listed) && n.read(n.netDir, "10-calico.conflist") == calico
			})
			p.end()
			n.mustUninstall()
			n.wantOnly("10-calico.conflist", test.file)
			if got := n.read(n.netDir, test.file); got != test.content {
				t.Errorf("%s after the uninstall:\n%s", test.file, got)
			}
		})
	}
}

func TestAnOlderPrimaryThatIsGarbageNow(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.startReady()
	n.write(n.netDir, "10-calico.conflist", notJSON, 0o644)
	p.waitAnswer(http.StatusServiceUnavailable, "config: waiting")
	n.write(n.netDir, "05-calico.conflist", calico, 0o644)
	p.waitReady()
	if got := n.read(n.netDir, "10-calico.conflist"); got != notJSON {
		t.Errorf("the garbage, which belongs to another program, was changed: %q", got)
	}
}

func TestBetterSortingPrimaryAfterALiftedOne(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-bridge.conf", bridge, 0o640)
	n.startReady()
	n.write(n.netDir, "05-calico.conflist", calico, 0o644)
	n.until("the single configuration is given back", n.netDir, func() bool {
		files := n.files(n.netDir)
		return n.hasEntry("05-calico.conflist") && files["10-bridge.conf"] == "-rw-r----- "+bridge && files["10-bridge.conflist"] == ""
	})
}

func TestSingleConfigurationIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{"first": nil, "named single": conf("10-b.conf"), "named list": conf("10-b.conflist")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.prepare(map[string]string{"10-b.conf": bridge}, env)
			p := n.startReady()
			newer := strings.Replace(bridge, "rkt.kubernetes.io", "newer", 1)
			n.write(n.netDir, "10-b.conf", newer, 0o644)
			n.until("it is a list again", n.netDir, func() bool {
				files := n.files(n.netDir)
				return files["10-b.conf"] == "" && strings.Contains(files["10-b.conflist"], "newer") && n.hasEntry("10-b.conflist")
			})
			p.end()
			n.mustUninstall()
			n.wantOnly("10-b.conf")
			if got := n.read(n.netDir, "10-b.conf"); got != newer {
				t.Errorf("given back:\n%s\nwant:\n%s", got, newer)
			}
		})
	}
}

func TestBinaryIsRestored(t *testing.T) {
	t.Parallel()
	for name, tamper := range map[string]func(n *testNode){
		"removed":     func(n *testNode) { n.remove(n.binDir, "istio-cni") },
		"overwritten": func(n *testNode) { n.write(n.binDir, "istio-cni", "THE PLUGIN", 0o755) },
		"mode":        func(n *testNode) { n.write(n.binDir, "istio-cni", "the plugin", 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			n.startReady()
			tamper(n)
			n.until("the plugin is back", n.binDir, func() bool { return n.files(n.binDir)["istio-cni"] == "-rwxr-xr-x the plugin" })
		})
	}
}

func TestKubeconfigIsRestored(t *testing.T) {
	t.Parallel()
	const name = "istio-cni-kubeconfig"
	for what, tamper := range map[string]func(n *testNode){
		"removed":     func(n *testNode) { n.remove(n.runDir, name) },
		"overwritten": func(n *testNode) { n.write(n.runDir, name, "{}", 0o600) },
		"mode":        func(n *testNode) { n.write(n.runDir, name, n.read(n.runDir, name), 0o644) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			n.startReady()
			good := n.files(n.runDir)[name]
			tamper(n)
			n.until("the kubeconfig is back", n.runDir, func() bool { return n.files(n.runDir)[name] == good })
		})
	}
}

func TestTokenRotation(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.startReady()
	list, err := os.Stat(filepath.Join(n.netDir, "10-calico.conflist"))
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"token-2", "token-3", "token-4"} {
		n.rotateToken(token)
		n.until("the kubeconfig has the new token", n.runDir, func() bool {
			return strings.Contains(n.files(n.runDir)["istio-cni-kubeconfig"], token)
		})
	}
	p.waitReady()
	if text := p.log.String(); strings.Count(text, "msg=ready") != 1 || strings.Contains(text[strings.Index(text, "msg=ready"):], "not ready") {
		t.Error("readiness flapped")
	}
	after, err := os.Stat(filepath.Join(n.netDir, "10-calico.conflist"))
	if err != nil || !os.SameFile(list, after) {
		t.Errorf("the configuration was written for a new token: %v", err)
	}
}

func TestDirectoryIsMadeAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.startReady()
	mustRename(t, n.netDir, n.netDir+".old")
	p.waitAnswer(http.StatusServiceUnavailable, "config: ")
	if err := os.Mkdir(n.netDir, 0o755); err != nil {
		t.Fatal(err)
	}
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p.waitReady()
	n.wantPlugins("10-calico.conflist", "calico", "portmap", "istio-cni")
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.until("the entry is back", n.netDir, func() bool { return n.hasEntry("10-calico.conflist") })
}

func TestAFightIsReported(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.startReady()
	for range 11 {
		n.write(n.netDir, "10-calico.conflist", calico, 0o644)
		n.until("the entry is back", n.netDir, func() bool { return n.hasEntry("10-calico.conflist") })
	}
	p.waitLog("the fight is warned of", func() bool {
		return strings.Contains(p.log.String(), `level=WARN msg="another program keeps changing`)
	})
	// Restores pause only on a machine that makes more than two a second; the other program has
	// stopped.
	p.waitReady()
	if got := strings.Count(p.log.String(), `level=WARN msg="another program keeps changing`); got != 1 {
		t.Errorf("the fight is warned of %d times", got)
	}
	if got := strings.Count(p.log.String(), `level=INFO msg="the plugin was taken away`); got > 5 {
		t.Errorf("%d restores are logged, besides the fight", got)
	}
}

func TestClaimIsRestored(t *testing.T) {
	t.Parallel()
	for name, tamper := range map[string]func(n *testNode){
		"removed":     func(n *testNode) { n.remove(n.binDir, "istio-cni.claim") },
		"overwritten": func(n *testNode) { n.write(n.binDir, "istio-cni.claim", "{}", 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-bridge.conf", bridge, 0o640)
			before := n.files(n.netDir)
			p := n.startReady()
			good := n.files(n.binDir)["istio-cni.claim"]
			tamper(n)
			n.until("the claim is back", n.binDir, func() bool { return n.files(n.binDir)["istio-cni.claim"] == good })
			p.end()
			n.mustUninstall()
			if diff := cmp.Diff(before, n.files(n.netDir)); diff != "" {
				t.Errorf("the configuration directory after the uninstall (-want +got):\n%s", diff)
			}
		})
	}
}

// TestANewerDaemonTakesOver runs two versions at the same time, as a rolling update with maxSurge
// does, and then a rollback.
func TestANewerDaemonTakesOver(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	old := n.startReady()
	update := *n
	update.sourceDir, update.env = t.TempDir(), maps.Clone(n.env)
	update.write(update.sourceDir, "istio-cni", "the newer plugin", 0o755)
	update.env["CNI_BIN_SOURCE_DIR"] = update.sourceDir
	newer := update.startReady()
	old.waitAnswer(http.StatusServiceUnavailable, "config: a newer daemon is in charge of this node")
	n.write(n.binDir, "istio-cni", "belongs to another program", 0o755)
	n.until("the newer plugin is back", n.binDir, func() bool { return n.files(n.binDir)["istio-cni"] == "-rwxr-xr-x the newer plugin" })
	newer.waitReady()
	if text := old.log.String(); strings.Count(text, "a newer daemon is in charge of this node now") != 1 {
		t.Error("the older daemon doesn't say once that it stands back")
	}
	newer.end()
	old.waitReady()
	if got := n.read(n.binDir, "istio-cni"); got != "the plugin" {
		t.Errorf("after the rollback the plugin is %q", got)
	}
}

func mustRename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
