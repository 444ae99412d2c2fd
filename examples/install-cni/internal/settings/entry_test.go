// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

// TestEntryIsWhatThePluginReads: every setting of the plugin reaches the plugin.
func TestEntryIsWhatThePluginReads(t *testing.T) {
	t.Parallel()
	body, err := Settings{
		PluginLogLevel: "warn", RunDir: "/run/x", ExcludeNamespaces: []string{"a"}, PodNamespace: "mesh", NativeNFTables: true,
		PluginKubeconfig: "/k", PluginDataplane: "auto", AgentName: "agent", PluginProcRoot: "/host/proc", PluginTimeout: "20s",
		FailPolicy: pluginconf.FailPolicy{Open: []string{"b"}}, StatusPolicy: "off", AbandonedAfter: "2h",
	}.Entry()
	if err != nil {
		t.Fatal(err)
	}
	c, err := PluginPaths().Parse(body)
	if err != nil {
		t.Fatal(err)
	}
	want := pluginconf.Config{
		CNIVersion: "0.1.0", Name: "istio-cni", LogLevel: "warn", Level: 4, RunDir: "/run/x", ExcludeNamespaces: []string{"a"}, PodNamespace: "mesh",
		NativeNFTables: true, Kubeconfig: "/k", Dataplane: "auto", AgentName: "agent", ProcRoot: "/host/proc", Timeout: "20s",
		FailPolicy: pluginconf.FailPolicy{Open: []string{"b"}}, StatusPolicy: "off", AbandonedAfter: "2h",
		EnablementSelectors: json.RawMessage("[]"),
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c.Timeout.Duration() != 20*time.Second {
		t.Errorf("timeout %v", c.Timeout.Duration())
	}
}

func TestEntryThatNoPluginTakes(t *testing.T) {
	t.Parallel()
	if body, err := (Settings{StatusPolicy: "sometimes"}).Entry(); err == nil {
		t.Errorf("an entry nevertheless: %s", body)
	}
}

// TestEntryOfAmbientMode has Istio's selectors where none are set, and the proxy in this daemon's
// namespace.
func TestEntryOfAmbientMode(t *testing.T) {
	t.Parallel()
	selectors, err := json.Marshal(ambient.IstioPolicy().Selectors)
	if err != nil {
		t.Fatal(err)
	}
	istios := string(selectors)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"off":      {nil, `false [] null null`},
		"defaults": {[]string{"--ambient-enabled"}, `true ` + istios + ` "mesh" "ztunnel"`},
		"all": {
			[]string{"--ambient-enabled", "--ambient-enablement-selector=[]", "--ambient-proxy-namespace=z", "--ambient-proxy-name=p"},
			`true [] "z" "p"`,
		},
		"in a template": {
			[]string{"--ambient-enabled", `--cni-network-config={"type": "istio-cni", "ambient_enabled": false, "enablement_selectors": [{}]}`},
			`true ` + istios + ` "mesh" "ztunnel"`,
		},
	} {
		body, err := mustLoad(t, nil, append(test.args, "--pod-namespace=mesh", "--node-name=n")...).Entry()
		var got map[string]json.RawMessage
		if err == nil {
			err = json.Unmarshal(body, &got)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		text := func(key string) string {
			if got[key] == nil {
				return "null"
			}
			return string(got[key])
		}
		if keys := strings.Join([]string{
			text("ambient_enabled"), text("enablement_selectors"), text("ambient_proxy_namespace"), text("ambient_proxy_name"),
		}, " "); keys != test.want {
			t.Errorf("%s: %s, want %s", name, keys, test.want)
		}
	}
}

func TestAmbientConfig(t *testing.T) {
	t.Parallel()
	if config, err := mustLoad(t, nil).AmbientConfig(); config != nil || err != nil {
		t.Errorf("ambient mode is off: %+v, %v", config, err)
	}
	config, err := mustLoad(t, nil, "--ambient-enabled", "--node-name=n", "--pod-namespace=mesh", "--exclude-namespaces=a", "--ambient-dns-capture",
		"--ambient-closed", "--ambient-existing=capture", "--drain-timeout=5s", "--native-nftables", "--ambient-enablement-selector=[{podSelector: {}}]",
		"--ambient-enable-aws-branch-eni-probe=false",
	).AmbientConfig()
	want := &ambientconf.Config{
		Selectors: json.RawMessage(`[{"podSelector":{},"namespaceSelector":{}}]`), ExcludeNamespaces: []string{"a"}, ProxyNamespace: "mesh", DNS: true,
		Closed: true, CaptureExisting: true, NoBranches: true, DrainTimeout: "5s", Dataplane: "nftables",
	}
	if diff := cmp.Diff(want, config); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for args, want := range map[string]string{"--dataplane=auto": "", "--dataplane=iptables": "iptables", "--native-nftables=false": ""} {
		if config, err := mustLoad(t, nil, "--ambient-enabled", "--node-name=n", args).AmbientConfig(); err != nil || config.Dataplane != want || config.NoBranches {
			t.Errorf("%s: %+v, %v", args, config, err)
		}
	}
}

// TestAmbientConfigOnNode has the capture in the node's namespace, which has no use for some
// settings. What it returns is as node-ambient takes it.
func TestAmbientConfigOnNode(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]ambientconf.Config{
		"--ambient-way=veth":                           {},
		"--ambient-mode=in-pod":                        {},
		"--ambient-mode=node":                          {Mode: "node", Way: "veth"},
		"--ambient-mode=node --ambient-way=vxlan":      {Mode: "node", Way: "vxlan"},
		"--ambient-mode=node --ambient-existing=spare": {Mode: "node", Way: "veth"},
		"--ambient-mode=node --ambient-way=":           {Mode: "node"},
		"--ambient-mode=node --ambient-closed --ambient-enable-aws-branch-eni-probe=false": {Mode: "node", Way: "veth", Closed: true, NoBranches: true},
	} {
		config, err := mustLoad(t, nil, append(strings.Fields(args), "--ambient-enabled", "--node-name=n", "--pod-namespace=mesh")...).AmbientConfig()
		if err == nil {
			err = config.Validate()
		}
		if err != nil || config.Mode != want.Mode || config.Way != want.Way || config.Closed != want.Closed || config.NoBranches != want.NoBranches {
			t.Errorf("%s: %+v, %v", args, config, err)
		}
	}
}
