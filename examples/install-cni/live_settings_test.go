// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/conflist"
	"github.com/meshcni/meshcni/examples/install-cni/internal/settings"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

// configMap replaces the settings directory through its links, as the kubelet does with a mounted
// ConfigMap.
func (n *testNode) configMap(values map[string]string) {
	n.t.Helper()
	if err := os.MkdirAll(n.settingsDir, 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.maps++
	data := filepath.Join(n.settingsDir, fmt.Sprintf("..2026_%d", n.maps))
	if err := os.Mkdir(data, 0o755); err != nil {
		n.t.Fatal(err)
	}
	for name, value := range values {
		n.write(data, name, value, 0o644)
	}
	link := filepath.Join(n.settingsDir, "..data")
	old, _ := os.Readlink(link)
	n.link(filepath.Base(data), link+"_tmp")
	if err := os.Rename(link+"_tmp", link); err != nil {
		n.t.Fatal(err)
	}
	for name := range values {
		n.link(filepath.Join("..data", name), filepath.Join(n.settingsDir, name))
	}
	entries, err := os.ReadDir(n.settingsDir)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, entry := range entries {
		if _, stays := values[entry.Name()]; !stays && !strings.HasPrefix(entry.Name(), "..") {
			n.remove(n.settingsDir, entry.Name())
		}
	}
	if old != "" {
		if err := os.RemoveAll(filepath.Join(n.settingsDir, old)); err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *testNode) link(target, path string) {
	n.t.Helper()
	if err := os.Symlink(target, path); err != nil && !os.IsExist(err) {
		n.t.Fatal(err)
	}
}

// entry returns the plugin's entry in Calico's list, as the plugin reads it.
func (n *testNode) entry() pluginconf.Config {
	n.t.Helper()
	body, found, err := conflist.Find([]byte(n.read(n.netDir, "10-calico.conflist")), "istio-cni")
	if err != nil || !found {
		n.t.Fatalf("found %v, %v", found, err)
	}
	c, err := settings.PluginPaths().Parse(body.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

// untilLogged waits until the log has a text.
func (p *process) untilLogged(text string) {
	p.node.t.Helper()
	deadline := time.After(patience)
	for !strings.Contains(p.log.String(), text) {
		select {
		case <-p.log.News():
		case <-p.done:
			p.node.t.Fatalf("install-cni ended with code %d", p.code)
		case <-deadline:
			p.node.t.Fatalf("the log doesn't say %q:\n%s", text, p.log)
		}
	}
}

func TestSettingsChangeWhileTheDaemonRuns(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	delete(n.env, "EXCLUDE_NAMESPACES")
	delete(n.env, "LOG_OUTPUT_LEVEL")
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.configMap(map[string]string{"EXCLUDE_NAMESPACES": "a", "log_output_level": "info"})
	p := n.startReady()
	if c := n.entry(); fmt.Sprint(c.ExcludeNamespaces) != "[a]" || c.LogLevel != "info" {
		t.Errorf("entry at first: %+v", c)
	}

	n.configMap(map[string]string{
		"EXCLUDE_NAMESPACES": "a,b", "fail-policy": "open", "log_output_level": "cni-agent:debug,cni-plugin:warn", "status-policy": "off",
	})
	n.until("the entry has the new settings", n.netDir, func() bool {
		c := n.entry()
		return fmt.Sprint(c.ExcludeNamespaces) == "[a b]" && c.FailPolicy.Default == "open" && c.LogLevel == "warn" && c.StatusPolicy == "off"
	})
	n.configMap(map[string]string{"EXCLUDE_NAMESPACES": "a,b", "fail-policy": "open", "log_output_level": "cni-agent:debug,cni-plugin:warn"})
	n.until("a setting is back at its default", n.netDir, func() bool { return n.entry().StatusPolicy == "" })
	p.untilLogged("level=DEBUG") // of the daemon's own log
	p.waitReady()
}

func TestSettingsThatCannotChange(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o644)
	n.configMap(map[string]string{"fail-policy": "open", "pod-name": "istio-cni-node-x7k2p"})
	p := n.startReady()
	before := n.read(n.netDir, "10-calico.conflist")

	n.configMap(map[string]string{"fail-policy": "ajar", "pod-name": "other-x7k2p", "no-such-setting": "x"})
	p.untilLogged("a new value is refused; the old one stays")
	p.untilLogged("this setting can't change while the daemon runs")
	p.waitReady()
	if after := n.read(n.netDir, "10-calico.conflist"); after != before {
		t.Errorf("the entry has changed:\n%s", after)
	}
	// The kubelet replaces existing files at once, and adds new ones after that.
	for _, want := range []string{
		"refused: ajar from file " + filepath.Join(n.settingsDir, "fail-policy"),
		"with the next start: other-x7k2p from file " + filepath.Join(n.settingsDir, "pod-name"),
		filepath.Join(n.settingsDir, "no-such-setting") + " looks like a setting, but is unknown",
	} {
		n.until("config --running says "+want, n.runDir, func() bool {
			code, said := n.config("--running")
			return strings.Contains(said, want) && code == exitUsage
		})
	}

	n.configMap(map[string]string{"fail-policy": "closed", "pod-name": "istio-cni-node-x7k2p"})
	n.until("a good value is taken", n.netDir, func() bool { return n.entry().FailPolicy.Default == "closed" })
	n.until("nothing is left to say", n.runDir, func() bool {
		code, said := n.config("--running")
		return code == exitOK && !strings.Contains(said, "refused") && !strings.Contains(said, "next start")
	})
}

// config prints the settings.
func (n *testNode) config(args ...string) (code int, said string) {
	n.t.Helper()
	var out bytes.Buffer
	code = run(context.Background(), n.environment(&out, append([]string{"config"}, args...)...))
	return code, out.String()
}

func TestABrokenConfigMapKeepsADaemonFromStarting(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.configMap(map[string]string{"fail-policy": "ajar"})
	p := n.start()
	p.wantExit(exitUsage)
	if text := p.log.String(); !strings.Contains(text, filepath.Join(n.settingsDir, "fail-policy")) {
		t.Errorf("output:\n%s", text)
	}
	if code, output := n.uninstall(); code != exitOK {
		t.Errorf("uninstall: exit code %d\n%s", code, output)
	}
}

func TestNoRecordOfSettings(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var out bytes.Buffer
	if code := run(context.Background(), n.environment(&out, "config", "--running")); code != exitFailure || !strings.Contains(out.String(), "writes it") {
		t.Errorf("exit code %d\n%s", code, &out)
	}
}
