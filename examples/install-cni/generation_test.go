// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// istio118 is the template in the ConfigMap of Istio 1.18's chart.
const istio118 = `{
  "cniVersion": "0.3.1",
  "name": "istio-cni",
  "type": "istio-cni",
  "log_level": "info",
  "log_uds_address": "__LOG_UDS_ADDRESS__",
  "kubernetes": {
    "kubeconfig": "__KUBECONFIG_FILEPATH__",
    "cni_bin_dir": "/opt/cni/bin",
    "exclude_namespaces": ["istio-system", "kube-system"]
  }
}`

// asIstio118 gives a node the environment and the mounts of Istio 1.18's DaemonSet.
func (n *testNode) asIstio118() {
	n.env["CNI_NETWORK_CONFIG"], n.env["CNI_NET_DIR"] = istio118, "/etc/cni/net.d"
	n.env["KUBECFG_FILE_NAME"], n.env["KUBECONFIG_MODE"] = "ZZZ-istio-cni-kubeconfig", "0600"
	n.env["LOG_UDS_ADDRESS"] = filepath.Join(n.runDir, "log.sock")
	n.env["CHAINED_CNI_PLUGIN"], n.env["REPAIR_ENABLED"], n.env["REPAIR_RUN_AS_DAEMON"] = "true", "true", "true"
	delete(n.env, "CNI_AGENT_RUN_DIR")
	delete(n.env, "EXCLUDE_NAMESPACES")
}

func TestIstio118IsReplacedInPlace(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.asIstio118()
	old := strings.Replace(calico, "\n  ]", `,
    {"type": "istio-cni", "log_level": "info", "kubernetes": {"kubeconfig": "/etc/cni/net.d/ZZZ-istio-cni-kubeconfig"}}
  ]`, 1)
	if old == calico {
		t.Fatal("the list has another form")
	}
	n.write(n.netDir, "10-calico.conflist", old, 0o644)
	n.write(n.netDir, "ZZZ-istio-cni-kubeconfig", "the old one's", 0o600)
	n.write(n.binDir, "istio-cni", "the old plugin", 0o755)
	p := n.startReady()
	n.wantPlugins("10-calico.conflist", "calico", "portmap", "istio-cni")
	c := n.entry()
	got := fmt.Sprint(c.Kubeconfig, c.RunDir, c.ExcludeNamespaces, c.PodNamespace, c.AgentName, c.LogLevel)
	want := fmt.Sprint("/etc/cni/net.d/ZZZ-istio-cni-kubeconfig", n.runDir, []string{"istio-system", "kube-system"}, "istio-system", "istio-cni-node", "info")
	if got != want {
		t.Errorf("the plugin reads %s, want %s", got, want)
	}
	if text := n.read(n.netDir, "ZZZ-istio-cni-kubeconfig"); !strings.Contains(text, "token-1") {
		t.Errorf("kubeconfig:\n%s", text)
	}
	if text := n.read(n.binDir, "istio-cni"); text != "the plugin" {
		t.Errorf("binary: %s", text)
	}
	n.rotateToken("token-2")
	n.until("the kubeconfig has the new token", n.netDir, func() bool {
		return strings.Contains(n.read(n.netDir, "ZZZ-istio-cni-kubeconfig"), "token-2")
	})
	p.waitReady()
	p.end()
	n.mustUninstall()
	n.wantOnly("10-calico.conflist")
	n.wantPlugins("10-calico.conflist", "calico", "portmap")
}

func TestSettingsGoBeforeTheTemplate(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.asIstio118()
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.configMap(map[string]string{"cni_network_config": istio118, "fail-policy": "open", "exclude-namespaces": "batch"})
	delete(n.env, "CNI_NETWORK_CONFIG")
	n.startReady()
	if c := n.entry(); c.FailPolicy.Default != "open" || fmt.Sprint(c.ExcludeNamespaces) != "[batch]" {
		t.Errorf("entry %+v", c)
	}
	n.configMap(map[string]string{"cni_network_config": strings.Replace(istio118, `"info"`, `"debug"`, 1), "exclude-namespaces": ""})
	n.until("the new template is in place", n.netDir, func() bool {
		c := n.entry()
		return c.LogLevel == "debug" && c.FailPolicy.Default == "" && fmt.Sprint(c.ExcludeNamespaces) == "[istio-system kube-system]"
	})
}

func TestInstallationIsSwitchedOff(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.env["CNI_ENABLE_INSTALL"] = "false"
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	p := n.startReady("--uninstall-on-exit")
	p.end()
	n.wantPresent()
	if got := n.read(n.netDir, "10-calico.conflist"); got != calico {
		t.Errorf("the configuration was changed:\n%s", got)
	}
}

func TestWhichBinariesAreInstalled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	second := filepath.Join(n.runDirParent(), "second")
	if err := os.Mkdir(second, 0o755); err != nil {
		t.Fatal(err)
	}
	n.env["SECONDARY_CNI_BIN_DIR"], n.env["UPDATE_CNI_BINARIES"], n.env["SKIP_CNI_BINARIES"] = second, "false", "unwanted other"
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.write(n.sourceDir, "unwanted", "unwanted", 0o755)
	n.write(n.sourceDir, "wanted", "wanted", 0o755)
	n.write(n.binDir, "istio-cni", "the node's", 0o755)
	p := n.startReady()
	if got := n.read(n.binDir, "istio-cni"); got != "the node's" {
		t.Errorf("the binary was replaced by %q", got)
	}
	if got := n.read(second, "istio-cni"); got != "the plugin" {
		t.Errorf("second binary: %q", got)
	}
	if _, err := os.Lstat(filepath.Join(n.binDir, "unwanted")); err == nil {
		t.Error("a binary was installed that is to be skipped")
	}
	if got := n.read(n.binDir, "wanted"); got != "wanted" {
		t.Errorf("another binary: %q", got)
	}
	n.remove(second, "istio-cni")
	n.until("the second binary is back", second, func() bool {
		_, err := os.Lstat(filepath.Join(second, "istio-cni"))
		return err == nil
	})
	p.waitReady()
	p.end()
	n.mustUninstall()
	if files := n.files(second); len(files) != 0 {
		t.Errorf("left in the second directory: %v", files)
	}
}

// TestTheTemplateIsWatched replaces the template's file through links, as in a mounted ConfigMap,
// by a good one and a bad one.
func TestTheTemplateIsWatched(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	template := `{"type": "istio-cni", "log_level": "%s", "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"}}`
	n.configMap(map[string]string{"template": fmt.Sprintf(template, "info")})
	n.env["SETTINGS_DIR"], n.env["CNI_NETWORK_CONFIG_FILE"] = "", filepath.Join(n.settingsDir, "template")
	p := n.startReady()
	has := func(text string) func() bool {
		return func() bool { return strings.Contains(n.read(n.netDir, "10-calico.conflist"), text) }
	}
	n.configMap(map[string]string{"template": fmt.Sprintf(template, "debug")})
	n.until("the new template is taken", n.netDir, has(`"debug"`))
	n.configMap(map[string]string{"template": `{"type": "__NOTHING__"}`})
	p.untilLogged("a new value is refused; the old one stays")
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.until("the old entry is restored", n.netDir, has(`"debug"`))
	p.waitReady()
}
