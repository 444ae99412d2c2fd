// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/meshcni/meshcni/examples/install-cni/internal/dataplane"
	"github.com/meshcni/meshcni/examples/internal/istiomesh"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
)

// without is a dataplane on a kernel that does not support it.
type without struct{ interception.Dataplane }

// Apply returns an error.
func (without) Apply(context.Context, *interception.Netns, *interception.Plan) error {
	return fmt.Errorf("nf_tables: %w", interception.ErrUnsupported)
}

// newDataplaneNode has both builds of the plugin to install, and tries the real kernel, or one
// without nf_tables.
func newDataplaneNode(t *testing.T, nfTables bool) *testNode {
	t.Helper()
	n := newNode(t)
	n.write(n.netDir, "10-calico.conflist", calico, 0o600)
	n.write(n.sourceDir, "istio-cni-iptables", "the plugin with iptables", 0o755)
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !nfTables {
		candidates[0].Dataplane = without{candidates[0].Dataplane}
	}
	n.dataplane = func(log *slog.Logger, proc string) chooser {
		return dataplane.New(dataplane.Options{Mesh: istiomesh.Mesh(), Log: log, Candidates: candidates, Proc: proc})
	}
	return n
}

// wantDataplane checks the plugin's configuration, and which build is installed.
func (n *testNode) wantDataplane(setting, build string) {
	n.t.Helper()
	if got := n.entry().Dataplane; got != setting {
		n.t.Errorf("the configuration has dataplane %q, want %q", got, setting)
	}
	if got := n.read(n.binDir, "istio-cni"); got != build {
		n.t.Errorf("%q is installed, want %q", got, build)
	}
	if matches, err := filepath.Glob(filepath.Join(n.binDir, "*iptables*")); err != nil || matches != nil {
		n.t.Errorf("got %v, %v", matches, err)
	}
}

// TestDataplane installs what the setting and the kernel require.
func TestDataplane(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setting  string
		nfTables bool
		want     string
		build    string
		log      string
	}{
		"none":                        {"", true, "nftables", "the plugin", "nftables: the kernel has all that the plan needs"},
		"automatic":                   {"auto", true, "nftables", "the plugin", "nftables: the kernel has all that the plan needs"},
		"automatic, no nf_tables":     {"auto", false, "iptables", "the plugin with iptables", "not nftables: nf_tables: not supported"},
		"forced":                      {"iptables", true, "iptables", "the plugin with iptables", "iptables: the kernel has"},
		"forced, where it is not":     {"nftables", false, "nftables", "the plugin", "this node cannot capture pods"},
		"forced, where others aren't": {"iptables", false, "iptables", "the plugin with iptables", "iptables: the kernel has"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newDataplaneNode(t, test.nfTables)
			p := n.startReady("--dataplane=" + test.setting)
			n.wantDataplane(test.want, test.build)
			p.untilLogged(test.log)
		})
	}
}

// TestNodeWithoutNsenter warns of what the node lacks, as its /proc shows, and not of what the
// daemon's image lacks.
func TestNodeWithoutNsenter(t *testing.T) {
	t.Parallel()
	n, proc := newDataplaneNode(t, true), t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "1/root/usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := n.startReady("--dataplane=iptables", "--mounted-proc-dir="+proc)
	p.untilLogged("(hostUsers: false) are refused where iptables write the rules: the node has no nsenter")
}

func TestDataplaneThatIsNotShipped(t *testing.T) {
	t.Parallel()
	n := newDataplaneNode(t, false)
	n.remove(n.sourceDir, "istio-cni-iptables")
	p := n.start()
	p.waitAnswer(http.StatusServiceUnavailable, "no executable istio-cni-iptables in "+n.sourceDir)
}

// TestDataplaneChanges changes the setting while the daemon runs, and back.
func TestDataplaneChanges(t *testing.T) {
	t.Parallel()
	n := newDataplaneNode(t, true)
	n.configMap(map[string]string{"dataplane": "auto"})
	n.startReady()
	n.wantDataplane("nftables", "the plugin")
	for _, test := range []struct{ setting, build string }{{"iptables", "the plugin with iptables"}, {"nftables", "the plugin"}} {
		n.configMap(map[string]string{"dataplane": test.setting})
		n.until("the configuration to change", n.netDir, func() bool { return n.entry().Dataplane == test.setting })
		n.until("the build to change", n.binDir, func() bool { return n.read(n.binDir, "istio-cni") == test.build })
		n.wantDataplane(test.setting, test.build)
	}
}

// TestTemplatesDataplane has the dataplane in nothing but the template for the entry: the choice
// obeys it, as repair and ambient mode do, and the build is the one that it needs.
func TestTemplatesDataplane(t *testing.T) {
	t.Parallel()
	n := newDataplaneNode(t, true)
	template := func(dataplane string) {
		n.configMap(map[string]string{"cni_network_config": `{"type": "istio-cni", "dataplane": "` + dataplane + `"}`})
	}
	template("iptables")
	n.startReady()
	n.wantDataplane("iptables", "the plugin with iptables")
	n.wantSameDataplane()
	template("nftables")
	n.until("the configuration to change", n.netDir, func() bool { return n.entry().Dataplane == "nftables" })
	n.until("the build to change", n.binDir, func() bool { return n.read(n.binDir, "istio-cni") == "the plugin" })
	n.wantSameDataplane()
}

// wantSameDataplane checks that repair and ambient mode write rules as the installed plugin.
func (n *testNode) wantSameDataplane() {
	n.t.Helper()
	s := n.settings("--node-name=n")
	s.Ambient.Enabled = true
	forRepair, err := s.RepairConfig()
	if err != nil {
		n.t.Fatal(err)
	}
	forAmbient, err := s.AmbientConfig()
	if err != nil {
		n.t.Fatal(err)
	}
	if plugin := n.entry().Dataplane; forRepair.InPlace.Dataplane != plugin || forAmbient.Dataplane != plugin {
		n.t.Errorf("the plugin writes by %q, repair by %q, ambient mode by %q", plugin, forRepair.InPlace.Dataplane, forAmbient.Dataplane)
	}
}
