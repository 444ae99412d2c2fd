// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
