// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/repair"
)

func repairConfig(t *testing.T, s Settings) *repairconf.Config {
	t.Helper()
	config, err := s.RepairConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// TestRepairPolicy has rules before the modes for all other pods.
func TestRepairPolicy(t *testing.T) {
	t.Parallel()
	job := repair.Rule{OwnerKinds: []string{"Job"}, Do: []repair.Mode{repair.ModeReport}}
	for name, test := range map[string]struct {
		args []string
		want []repair.Rule
	}{
		"reports alone":    {nil, nil},
		"a mode":           {[]string{"--repair-delete-pods"}, []repair.Rule{{Do: []repair.Mode{repair.ModeDelete}}}},
		"several":          {[]string{"--repair-label-pods", "--repair-evict-pods"}, []repair.Rule{{Do: []repair.Mode{repair.ModeEvict, repair.ModeLabel}}}},
		"evict goes first": {[]string{"--repair-delete-pods", "--repair-evict-pods"}, []repair.Rule{{Do: []repair.Mode{repair.ModeEvict}}}},
		"in place goes first of all": {
			[]string{"--repair-repair-pods", "--repair-delete-pods", "--mounted-proc-dir=/host/proc"},
			[]repair.Rule{{Do: []repair.Mode{repair.ModeRepair, repair.ModeDelete}}},
		},
		"rules": {[]string{"--repair-policy=owners=Job do=report"}, []repair.Rule{job}},
		"both": {
			[]string{"--repair-policy=owners=Job do=report", "--repair-label-pods"},
			[]repair.Rule{job, {Do: []repair.Mode{repair.ModeLabel}}},
		},
	} {
		config := repairConfig(t, mustLoad(t, nil, test.args...))
		if diff := cmp.Diff(test.want, config.Policy.Rules); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	config := repairConfig(t, mustLoad(t, nil, "--mounted-proc-dir=/host/proc", "--mounted-netns-dirs=/host/netns", "--dataplane=iptables"))
	want := &repairconf.InPlace{Proc: "/host/proc", Netns: []string{"/host/netns"}, Dataplane: "iptables"}
	if diff := cmp.Diff(want, config.InPlace); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	config = repairConfig(t, mustLoad(t, nil, "--mounted-proc-dir="))
	if config.InPlace != nil || config.Journal != "/var/run/istio-cni/journal" || config.Results != "/host/var/lib/cni/results" {
		t.Errorf("without a proc file system: %+v, %s, %s", config.InPlace, config.Journal, config.Results)
	}
	if config := repairConfig(t, mustLoad(t, nil, "--repair-enabled=false")); config != nil {
		t.Errorf("got %+v", config)
	}
}

// TestRepairInPlaceIsNoErrorByItself: only the node shows whether its proc file system is mounted.
func TestRepairInPlaceIsNoErrorByItself(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want bool
	}{
		{nil, false},
		{[]string{"--repair-repair-pods"}, true},
		{[]string{"--repair-repair-pods", "--mounted-proc-dir="}, true},
		{[]string{"--repair-repair-pods", "--repair-enabled=false"}, false},
		{[]string{"--repair-policy=owners=Job do=repair,label"}, true},
		{[]string{"--repair-policy=do=label"}, false},
	} {
		if got := mustLoad(t, nil, test.args...).Repair.WantsInPlace(); got != test.want {
			t.Errorf("%v: %v", test.args, got)
		}
	}
	if config := repairConfig(t, mustLoad(t, nil)); config.InPlace == nil || config.InPlace.Proc != "/host/proc" {
		t.Errorf("by default %+v", config.InPlace)
	}
	if config := repairConfig(t, mustLoad(t, nil, "--mounted-proc-dir=")); config.InPlace != nil {
		t.Errorf("without a directory %+v", config.InPlace)
	}
}

func TestRepairSettingsAreChecked(t *testing.T) {
	t.Parallel()
	wantErrors(t, nil, []string{"--readiness-taint=meshcni.io/not-ready"}, "set node-name")
	wantErrors(t, nil, []string{"--readiness-taint=not-ready"}, "with a domain")
	wantErrors(t, nil, []string{"--repair-policy=do=repair", "--mounted-netns-dirs=x"}, "not an absolute path")
	wantErrors(t, map[string]string{
		"REPAIR_BROKEN_POD_LABEL_KEY": "Example.com/x", "REPAIR_BROKEN_POD_LABEL_VALUE": "a b", "REPAIR_RESYNC": "1ms", "REPAIR_WRITES": "ten",
		"REPAIR_POLICY": "do=heal", "REPAIR_INIT_CONTAINER_EXIT_CODE": "256",
	}, nil, "write a key such as example.com/name", "at most 63 letters", "at least a second", "such as 10/10s", `"heal" is not a mode`, "from 0 to 255")
}

// TestRepairUsesThePluginsDataplane has what applies to the plugin apply to pods without a record.
func TestRepairUsesThePluginsDataplane(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"auto":     nil,
		"nftables": {"--native-nftables=true"},
		"iptables": {"--native-nftables=true", "--dataplane=iptables"},
	} {
		if got := repairConfig(t, mustLoad(t, nil, args...)).InPlace.Dataplane; got != want {
			t.Errorf("%v: %q, want %q", args, got, want)
		}
	}
}

// TestTemplateDecidesForAllPrograms has a template that names what the settings leave out, and an
// agent of its own, for which it goes before the settings: repair and ambient mode leave the same
// pods alone as the plugin, and write rules as it does.
func TestTemplateDecidesForAllPrograms(t *testing.T) {
	t.Parallel()
	env := map[string]string{"CNI_NETWORK_CONFIG": `{"type":"istio-cni","name":"istio-cni","dataplane":"iptables","exclude_namespaces":["bank"],
		"pod_namespace":"network","agent_name":"agent"}`}
	args := []string{"--ambient-enabled", "--node-name=n", "--pod-namespace=mesh", "--agent-name=install-cni"}
	for _, test := range []struct {
		args []string
		want string
	}{{nil, "bank"}, {[]string{"--exclude-namespaces=shop"}, "shop"}} {
		s := mustLoad(t, env, append(args, test.args...)...)
		forRepair := repairConfig(t, s)
		forAmbient, err := s.AmbientConfig()
		if err != nil {
			t.Fatal(err)
		}
		for program, excluded := range map[string][]string{"repair": forRepair.ExcludeNamespaces, "ambient": forAmbient.ExcludeNamespaces} {
			if !slices.Equal(excluded, []string{test.want}) {
				t.Errorf("%v: %s leaves %q alone, want %s", test.args, program, excluded, test.want)
			}
		}
		if forRepair.InPlace.Dataplane != "iptables" || forAmbient.Dataplane != "iptables" {
			t.Errorf("repair writes by %q, ambient mode by %q", forRepair.InPlace.Dataplane, forAmbient.Dataplane)
		}
		if forRepair.AgentNamespace != "network" || forRepair.AgentName != "agent" {
			t.Errorf("repair takes %s/%s for the plugin's agent", forRepair.AgentNamespace, forRepair.AgentName)
		}
	}
}
