// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist"
)

const (
	calico = `{
  "name": "k8s-pod-network",
  "cniVersion": "0.3.1",
  "plugins": [
    {"type": "calico", "mtu": 9007199254740993, "policy": {"type": "k8s"}, "note": "<&>"},
    {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}
  ]
}
`
	bridge = "{\n\t\"name\": \"rkt.kubernetes.io\",\r\n\t\"type\": \"bridge\",\n\t\"cniVersion\": \"1.0.0\",\n\t\"ipam\": {\"type\": \"host-local\"}\n}"

	notJSON   = "this is not JSON"
	noType    = `{"name": "rkt.kubernetes.io", "bridge": "mybridge"}`
	noName    = `{"cniVersion": "0.3.1", "plugins": [{"type": "calico"}]}`
	noPlugins = `{"name": "k8s-pod-network", "cniVersion": "0.3.1"}`
)

func TestFirstInstall(t *testing.T) {
	t.Parallel()
	type files = map[string]string
	tests := map[string]struct {
		before  files
		env     map[string]string
		listed  string   // the file with our entry
		others  []string // the types before ours
		removed string   // a single configuration that became a list
	}{
		"list":                           {files{"00-calico.conflist": calico}, nil, "00-calico.conflist", []string{"calico", "portmap"}, ""},
		"single":                         {files{"00-bridge.conf": bridge}, nil, "00-bridge.conflist", []string{"bridge"}, "00-bridge.conf"},
		"json":                           {files{"00-bridge.json": bridge}, nil, "00-bridge.conflist", []string{"bridge"}, "00-bridge.json"},
		"first is a list":                {files{"000-net.conflist": calico, "10-b.conf": bridge}, nil, "000-net.conflist", []string{"calico", "portmap"}, ""},
		"first is single":                {files{"000-net.conf": bridge, "10-c.conflist": calico}, nil, "000-net.conflist", []string{"bridge"}, "000-net.conf"},
		"skip what isn't JSON, single":   {files{"000-x.conf": notJSON, "10-b.conf": bridge}, nil, "10-b.conflist", []string{"bridge"}, "10-b.conf"},
		"skip what isn't JSON, list":     {files{"000-x.conf": notJSON, "10-c.conflist": calico}, nil, "10-c.conflist", []string{"calico", "portmap"}, ""},
		"skip a single without type":     {files{"000-x.conf": noType, "10-b.conf": bridge}, nil, "10-b.conflist", []string{"bridge"}, "10-b.conf"},
		"skip a list without name":       {files{"000-x.conflist": noName, "10-b.conf": bridge}, nil, "10-b.conflist", []string{"bridge"}, "10-b.conf"},
		"skip a list without plugins":    {files{"000-x.conflist": noPlugins, "10-c.conflist": calico}, nil, "10-c.conflist", []string{"calico", "portmap"}, ""},
		"named":                          {files{"10-c.conflist": calico, "20-b.conf": bridge}, fixedConf("20-b.conf"), "20-b.conflist", []string{"bridge"}, "20-b.conf"},
		"named single is a list by now":  {files{"10-c.conflist": calico}, conf("10-c.conf"), "10-c.conflist", []string{"calico", "portmap"}, ""},
		"named list is still a single":   {files{"10-b.conf": bridge}, conf("10-b.conflist"), "10-b.conflist", []string{"bridge"}, "10-b.conf"},
		"temporary and foreign leftover": {files{"10-c.conflist": calico, "00-a.conflist.tmp.12": calico, "README": "x"}, nil, "10-c.conflist", []string{"calico", "portmap"}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.prepare(test.before, test.env)
			before := n.files(n.netDir)

			p := n.startReady()
			n.wantPlugins(test.listed, append(test.others, "istio-cni")...)
			var want []string
			for file := range test.before {
				if file != test.removed && file != test.listed {
					want = append(want, file)
				}
			}
			n.wantOnly(append(want, test.listed)...)
			if info, err := os.Stat(filepath.Join(n.netDir, test.listed)); err != nil || info.Mode() != 0o644 {
				t.Errorf("the configuration's mode is %v, %v; it was 0644", info.Mode(), err)
			}
			p.end()
			n.wantPlugins(test.listed, append(test.others, "istio-cni")...)

			n.mustUninstall()
			if diff := cmp.Diff(before, n.files(n.netDir)); diff != "" {
				t.Errorf("the configuration directory after the uninstall (-want +got):\n%s", diff)
			}
		})
	}
}

func conf(name string) map[string]string { return map[string]string{"CNI_CONF_NAME": name} }

// fixedConf is for a runtime that does not take the first file.
func fixedConf(name string) map[string]string {
	return map[string]string{"CNI_CONF_NAME": name, "FIXED_DEFAULT_NETWORK": "true"}
}

func TestNotReadyBehindAnotherConfiguration(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.prepare(map[string]string{"05-other.conflist": calico, "20-b.conf": bridge}, conf("20-b.conf"))
	p := n.start()
	p.waitAnswer(http.StatusServiceUnavailable, "05-other.conflist to go: it sorts before 20-b.conflist")
	n.wantPlugins("20-b.conflist", "bridge", "istio-cni")
	n.remove(n.netDir, "05-other.conflist")
	p.waitReady()
	n.write(n.netDir, "06-late.conflist", calico, 0o644)
	p.waitAnswer(http.StatusServiceUnavailable, "06-late.conflist to go: it sorts before 20-b.conflist")
	p.end()
	n.startReady("--fixed-default-network")
	if got := n.read(n.netDir, "06-late.conflist"); got != calico {
		t.Errorf("somebody else's configuration was changed:\n%s", got)
	}
}

func TestEntry(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o600)
	n.env["LOG_OUTPUT_LEVEL"] = "default:info,cni-plugin:warn"
	n.env["NATIVE_NFTABLES"] = "true"
	n.startReady("--dataplane=auto", "--plugin-kubeconfig=/somewhere/kubeconfig", "--status-policy=off")
	plugin, found, err := conflist.Find([]byte(n.read(n.netDir, "10-calico.conflist")), "istio-cni")
	if err != nil || !found {
		t.Fatalf("no entry: %v", err)
	}
	var got map[string]any
	if err := json.Unmarshal(plugin.Body, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"name": "istio-cni", "type": "istio-cni", "ipam": map[string]any{}, "dns": map[string]any{}, "plugin_log_level": "warn",
		"cni_agent_run_dir": n.runDir, "ambient_enabled": false, "enablement_selectors": []any{},
		"exclude_namespaces": []any{"istio-system"}, "pod_namespace": "istio-system", "native_nftables": true,
		"enable_ambient_detection_retry": false,
		"capabilities":                   map[string]any{"io.kubernetes.cri.pod-annotations": true},
		"kubeconfig":                     "/somewhere/kubeconfig", "dataplane": "auto", "agent_name": "istio-cni-node",
		"status_policy": "off",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
}

func TestEntryHasOurSettingsOnlyWhenTheyAreSet(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o600)
	delete(n.env, "POD_NAME")
	n.startReady()
	for _, key := range []string{"agent_name", "dataplane", "status_policy", `"kubeconfig"`} {
		if text := n.read(n.netDir, "10-calico.conflist"); strings.Contains(text, key) {
			t.Errorf("the configuration has %s:\n%s", key, text)
		}
	}
}

func TestWhatIsWrittenAndHow(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o604)
	n.write(n.sourceDir, "helper", "another binary", 0o777)
	n.startReady()
	for path, want := range map[string]os.FileMode{
		filepath.Join(n.binDir, "istio-cni"):            0o755,
		filepath.Join(n.binDir, "helper"):               0o755,
		filepath.Join(n.binDir, "istio-cni.claim"):      0o600,
		filepath.Join(n.runDir, "istio-cni-kubeconfig"): 0o600,
		filepath.Join(n.netDir, "10-calico.conflist"):   0o604,
	} {
		if info, err := os.Lstat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want mode %v", path, info, err, want)
		}
	}
	for part, want := range map[string]bool{"token-1": true, "https://10.110.0.1:443": true} {
		if got := strings.Contains(n.read(n.runDir, "istio-cni-kubeconfig"), part); got != want {
			t.Errorf("the kubeconfig has %q: %v", part, got)
		}
	}
}

func TestKubeconfigSettings(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o600)
	n.remove(n.accountDir, "ca.crt")
	n.env["KUBERNETES_SERVICE_HOST"] = "fd00::1"
	n.startReady("--skip-tls-verify", "--kubeconfig-mode=0640")
	if text := n.read(n.runDir, "istio-cni-kubeconfig"); !strings.Contains(text, "https://[fd00::1]:443") {
		t.Error("the kubeconfig doesn't name the API server's v6 address")
	}
	if info, err := os.Stat(filepath.Join(n.runDir, "istio-cni-kubeconfig")); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, %v; want 0640", info.Mode(), err)
	}
}

func TestCertificateFromAFile(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o600)
	directory := t.TempDir()
	certificate := newCertificate(t)
	n.write(directory, "other-ca.crt", certificate, 0o600)
	n.startReady("--kube-ca-file=" + filepath.Join(directory, "other-ca.crt"))
	for _, certificate := range []string{certificate, newCertificate(t)} {
		n.write(directory, "other-ca.crt", certificate, 0o600)
		n.until("the kubeconfig has the certificate", n.runDir, func() bool {
			return strings.Contains(n.files(n.runDir)["istio-cni-kubeconfig"], base64.StdEncoding.EncodeToString([]byte(certificate)))
		})
	}
}

// TestInstallGoesOnAfterACrash has the states in which a killed process leaves a single
// configuration.
func TestInstallGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	for name, crash := range map[string]func(n *testNode){
		"the list isn't written":  func(n *testNode) { n.remove(n.netDir, "10-bridge.conflist") },
		"the single one is there": func(*testNode) {},
		"and the claim is lost":   func(n *testNode) { n.remove(n.binDir, "istio-cni.claim") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-bridge.conf", bridge, 0o640)
			n.startReady().end()
			n.write(n.netDir, "10-bridge.conf", bridge, 0o640)
			crash(n)
			n.startReady().end()
			n.wantOnly("10-bridge.conflist")
			n.wantPlugins("10-bridge.conflist", "bridge", "istio-cni")
			n.mustUninstall()
			if diff := cmp.Diff(map[string]string{"10-bridge.conf": "-rw-r----- " + bridge}, n.files(n.netDir)); diff != "" {
				t.Errorf("after the uninstall (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWaitsForAConfiguration(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		env    map[string]string
		before map[string]string
		waits  string
		then   string
		listed string
	}{
		"none":                      {nil, nil, "waiting for the cluster's network plugin", "10-b.conf", "10-b.conflist"},
		"none that is valid":        {nil, map[string]string{"00-x.conf": notJSON}, "00-x.conf", "10-b.conf", "10-b.conflist"},
		"the named one":             {fixedConf("20-b.conf"), map[string]string{"10-b.conf": bridge}, "cni-conf-name", "20-b.conf", "20-b.conflist"},
		"the named one, as sibling": {fixedConf("20-b.conflist"), map[string]string{"10-b.conf": bridge}, "cni-conf-name", "20-b.conf", "20-b.conflist"},
		"plugins in the named one":  {conf("20-b.conflist"), map[string]string{"20-b.conflist": `{"name":"x","plugins":[]}`}, "no network", "20-b.conf", "20-b.conflist"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.prepare(test.before, test.env)
			p := n.start()
			p.waitAnswer(http.StatusServiceUnavailable, test.waits)
			if test.listed == "20-b.conflist" && test.before["20-b.conflist"] != "" {
				n.write(n.netDir, test.listed, calico, 0o644)
			} else {
				n.write(n.netDir, test.then, bridge, 0o644)
			}
			p.waitReady()
			if !n.hasEntry(test.listed) {
				t.Errorf("no entry in %s: %v", test.listed, n.files(n.netDir))
			}
			if content, ok := test.before["10-b.conf"]; ok && n.read(n.netDir, "10-b.conf") != content {
				t.Error("a configuration that isn't the named one was touched")
			}
		})
	}
}

func TestSecondPassWritesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.startReady().end()
	type stamp struct {
		info os.FileInfo
	}
	claim, session := n.read(n.binDir, "istio-cni.claim"), regexp.MustCompile(`"session": \{[^}]*\}`)
	before := map[string]stamp{}
	for _, path := range n.installed() {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		before[path] = stamp{info}
	}
	n.startReady().end()
	for path, was := range before {
		info, err := os.Lstat(path)
		if err != nil || !os.SameFile(was.info, info) || !was.info.ModTime().Equal(info.ModTime()) {
			t.Errorf("%s was written again: %v, then %v, %v", path, was.info.ModTime(), info, err)
		}
	}
	again := n.read(n.binDir, "istio-cni.claim")
	if diff := cmp.Diff(session.ReplaceAllString(claim, ""), session.ReplaceAllString(again, "")); diff != "" || session.FindString(again) == "" {
		t.Errorf("the claim, but for its session (-want +got):\n%s", diff)
	}
}

// installed returns the files that the daemon keeps, without the claim, which names the daemon.
func (n *testNode) installed() []string {
	return []string{
		filepath.Join(n.netDir, "10-calico.conflist"), filepath.Join(n.binDir, "istio-cni"),
		filepath.Join(n.runDir, "istio-cni-kubeconfig"),
	}
}

func TestNoEntryBeforeWhatItNeeds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		breaks func(n *testNode)
		says   string
		repair func(n *testNode)
	}{
		"plugin": {
			func(n *testNode) { n.remove(n.sourceDir, "istio-cni") }, "no executable istio-cni", nil,
		},
		"plugin that nobody may run": {
			func(n *testNode) { n.write(n.sourceDir, "istio-cni", "x", 0o644) }, "no executable istio-cni", nil,
		},
		"token": {
			func(n *testNode) { n.remove(n.accountDir, "..data") }, "token of the service account",
			func(n *testNode) { n.rotateToken("token-2") },
		},
		"API server": {
			func(n *testNode) { delete(n.env, "KUBERNETES_SERVICE_HOST") }, "KUBERNETES_SERVICE_HOST", nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.write(n.netDir, "10-calico.conflist", calico, 0o644)
			test.breaks(n)
			p := n.start()
			p.waitAnswer(http.StatusServiceUnavailable, test.says)
			if got := n.read(n.netDir, "10-calico.conflist"); got != calico {
				t.Errorf("the configuration was changed:\n%s", got)
			}
			if test.repair == nil {
				return
			}
			test.repair(n)
			p.waitReady()
		})
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		make func(n *testNode)
		says string
	}{
		"link": {func(n *testNode) {
			n.write(n.runDirParent(), "elsewhere", calico, 0o644)
			if err := os.Symlink(filepath.Join(n.runDirParent(), "elsewhere"), filepath.Join(n.netDir, "10-a.conflist")); err != nil {
				n.t.Fatal(err)
			}
		}, "symbolic link"},
		"our own, alone": {func(n *testNode) {
			n.write(n.netDir, "10-a.conf", `{"name":"istio-cni","type":"istio-cni"}`, 0o644)
		}, "own single configuration"},
		"a list in the way": {func(n *testNode) {
			n.write(n.netDir, "10-a.conf", bridge, 0o644)
			n.write(n.netDir, "10-a.conflist", calico, 0o644)
		}, "belongs to another program"},
		"named, and broken": {func(n *testNode) {
			n.env["CNI_CONF_NAME"] = "10-a.conflist"
			n.write(n.netDir, "10-a.conflist", "{\n\"name\": 1,,}", 0o644)
		}, "line 2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			test.make(n)
			before := n.files(n.netDir)
			n.start().waitAnswer(http.StatusServiceUnavailable, test.says)
			if diff := cmp.Diff(before, n.files(n.netDir)); diff != "" {
				t.Errorf("the directory was changed (-want +got):\n%s", diff)
			}
		})
	}
}

func (n *testNode) runDirParent() string { return filepath.Dir(n.runDir) }

func TestLeftoversOfAKilledProcessAreRemoved(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	if err := os.Mkdir(n.runDir, 0o755); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	for directory, name := range map[string]string{
		n.netDir: "10-calico.conflist.tmp.0123456789abcdef", n.binDir: "istio-cni.tmp.0123456789abcdef",
		n.runDir: "istio-cni-kubeconfig.tmp.0123456789abcdef",
	} {
		n.write(directory, name, "half", 0o600)
		if err := os.Chtimes(filepath.Join(directory, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	n.startReady()
	n.wantOnly("10-calico.conflist")
	for _, directory := range []string{n.binDir, n.runDir} {
		for name := range n.files(directory) {
			if strings.Contains(name, ".tmp.") {
				t.Errorf("left in %s: %s", directory, name)
			}
		}
	}
}
