// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/interception/podsource"
)

// address returns where the daemon listens for a setting.
func (p *process) address(setting string) string {
	p.node.t.Helper()
	p.waitLog("listens on "+setting, func() bool { return p.bound(setting) != "" })
	return p.bound(setting)
}

func (p *process) bound(setting string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if address := p.addresses[setting]; address != nil {
		return address.String()
	}
	return ""
}

func (p *process) waitLine(parts ...string) {
	p.node.t.Helper()
	p.waitLog(strings.Join(parts, " "), func() bool {
		for line := range strings.Lines(p.log.String()) {
			found := true
			for _, part := range parts {
				found = found && strings.Contains(line, part)
			}
			if found {
				return true
			}
		}
		return false
	})
}

// verbose returns the JSON of /readyz.
func (p *process) verbose() (status int, parts map[string]string) {
	p.node.t.Helper()
	status, body := get(p.node.t, "http://"+p.address(p.node.env["HEALTH_ADDRESS"])+"/readyz?verbose")
	var answer struct {
		Parts []struct{ Part, Reason string }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		p.node.t.Fatalf("%v: %s", err, body)
	}
	parts = map[string]string{}
	for _, part := range answer.Parts {
		parts[part.Part] = part.Reason
	}
	return status, parts
}

func newReadyNode(t *testing.T) *testNode {
	t.Helper()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	return n
}

func TestThePluginsAgent(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	p := n.startReady()
	agent := podsource.Agent{RunDir: n.runDir}
	status, err := agent.Status(t.Context())
	if err != nil || status.Ready || status.Version != "v1.2.3-test" {
		t.Errorf("got %+v, %v", status, err)
	}
	err = agent.Log(t.Context(), []podsource.LogEntry{{
		Time: time.Now(), Level: slog.LevelWarn, Message: "a line", Attributes: map[string]string{"pod": "shop/web-0"},
	}})
	if err != nil {
		t.Error(err)
	}
	p.waitLine(`level=WARN msg="a line" from=cni-plugin pod=shop/web-0`)
}

// TestThePluginItself calls the plugin while there is no agent, and after.
func TestThePluginItself(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	plugin := build(t, istioCNI)
	if err := os.Mkdir(n.runDir, 0o750); err != nil {
		t.Fatal(err)
	}
	add := func(pod string) {
		command := exec.Command(plugin)
		command.Env = []string{
			"CNI_COMMAND=ADD", "CNI_CONTAINERID=c-" + pod, "CNI_IFNAME=eth0", "CNI_NETNS=/proc/1/ns/net", "CNI_NETNS_OVERRIDE=1", "CNI_PATH=/",
			"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=istio-system;K8S_POD_NAME=" + pod,
		}
		command.Stdin = strings.NewReader(`{"cniVersion":"1.1.0","name":"n","type":"istio-cni","exclude_namespaces":["istio-system"],` +
			`"cni_agent_run_dir":"` + n.runDir + `"}`)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
	}
	add("before-0")
	n.env["MONITORING_PORT"] = "15014"
	p := n.startReady()
	p.waitLine("from=cni-plugin", "pod=istio-system/before-0", "plugin.reason=excluded-namespace")
	p.waitLine(`msg="a command of the plugin has ended"`, "pod=istio-system/before-0")
	add("after-0")
	p.waitLine("from=cni-plugin", "pod=istio-system/after-0")
	p.waitLine(`msg="a command of the plugin has ended"`, "pod=istio-system/after-0")
	p.wantMetrics(`meshcni_plugin_decisions_total{captured="false",reason="excluded-namespace"} 2`,
		`meshcni_agent_requests_total{outcome="ok",request="kept-logs"} 2`)
}

// wantMetrics checks that /metrics has these samples.
func (p *process) wantMetrics(samples ...string) {
	p.node.t.Helper()
	_, body := get(p.node.t, "http://"+p.address(":15014")+"/metrics")
	for _, sample := range samples {
		if !strings.Contains(body, "\n"+sample+"\n") {
			p.node.t.Errorf("no %s in\n%s", sample, body)
		}
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	n.env["MONITORING_PORT"] = "15014"
	p := n.startReady()
	p.wantMetrics("istio_cni_install_ready 1", `istio_cni_installs_total{result="SUCCESS"} 1`, `meshcni_claim{state="held"} 1`,
		`meshcni_part_ready{part="agent-socket"} 1`, `meshcni_build_info{version="v1.2.3-test"} 1`)
	n.write(n.runDirParent(), "new", calico, 0o644)
	mustRename(t, filepath.Join(n.runDirParent(), "new"), filepath.Join(n.netDir, "10-calico.conflist"))
	p.waitLog("counted", func() bool {
		_, body := get(t, "http://"+p.address(":15014")+"/metrics")
		return strings.Contains(body, `meshcni_drift_healed_total{part="config"} 1`)
	})
	p.wantMetrics(`meshcni_drift_found_total{part="config"} 1`, `meshcni_conflist_restores_total{culprit="calico"} 1`, `istio_cni_installs_total{result="SUCCESS"} 2`)
}

func TestTheNodeIsReadyWithoutMetrics(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	n.env["MONITORING_PORT"], n.env["HEALTH_ADDRESS"] = "15014", "127.0.0.1:00"
	p := n.startListening(func(ctx context.Context, network, address string) (net.Listener, error) {
		if address != n.env["HEALTH_ADDRESS"] {
			return nil, errors.New("address already in use")
		}
		return (&net.ListenConfig{}).Listen(ctx, network, address)
	})
	p.waitReady()
	p.waitLog("a reason", func() bool {
		status, parts := p.verbose()
		return status == http.StatusOK && strings.Contains(parts["metrics"], "address already in use")
	})
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	n.env["PPROF_ADDRESS"] = "127.0.0.1:0000"
	p := n.startReady()
	if status, body := get(t, "http://"+p.address("127.0.0.1:0000")+"/debug/pprof/"); status != http.StatusOK {
		t.Errorf("got %d %s", status, body)
	}
}

// TestTokenRotationIsNoNews: readiness and all parts stay as they are while the token is renewed.
func TestTokenRotationIsNoNews(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	p := n.startReady()
	for _, token := range []string{"token-2", "token-3", "token-4"} {
		n.rotateToken(token)
		n.until("taken over", n.runDir, func() bool { return strings.Contains(n.files(n.runDir)["istio-cni-kubeconfig"], token) })
	}
	if _, after, _ := strings.Cut(p.log.String(), "msg=ready"); strings.Contains(after, "not ready") || strings.Contains(after, "a part failed") {
		t.Errorf("log since it was ready:\n%s", after)
	}
}

// TestSettingsThatChangeAreNoDrift: a setting changes the plugin's entry, which does not count as
// drift.
func TestSettingsThatChangeAreNoDrift(t *testing.T) {
	t.Parallel()
	n := newReadyNode(t)
	n.env["MONITORING_PORT"] = "15014"
	n.configMap(map[string]string{"fail-policy": "open"})
	p := n.startReady()
	n.configMap(map[string]string{"fail-policy": "closed"})
	p.waitLog("counted", func() bool {
		_, body := get(t, "http://"+p.address(":15014")+"/metrics")
		return strings.Contains(body, `istio_cni_installs_total{result="SUCCESS"} 2`)
	})
	if n.entry().FailPolicy.Default != "closed" {
		t.Error("the setting has no effect")
	}
	if _, body := get(t, "http://"+p.address(":15014")+"/metrics"); strings.Contains(body, "\nmeshcni_drift") || strings.Contains(body, "\nmeshcni_conflist_restores") {
		t.Errorf("counted as drift:\n%s", body)
	}
	n.write(n.binDir, "istio-cni", "another", 0o755)
	n.remove(n.runDir, "istio-cni-kubeconfig")
	p.waitLog("counted", func() bool {
		_, body := get(t, "http://"+p.address(":15014")+"/metrics")
		return strings.Contains(body, `meshcni_drift_healed_total{part="binaries"} 1`) && strings.Contains(body, `meshcni_drift_healed_total{part="kubeconfig"} 1`)
	})
	p.wantMetrics(`meshcni_drift_found_total{part="binaries"} 1`, `meshcni_drift_found_total{part="kubeconfig"} 1`)
}
