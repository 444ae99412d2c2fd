// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/plugin/pluginconf"
)

func dataplaneSetting(name string) string { return `{"dataplane": "` + name + `"}` }

// mustObserve wants the plan of the record, whole, from one dataplane.
func (n *node) mustObserve(d interception.Dataplane, err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
	record, err := n.journal().Read(web)
	if err != nil {
		n.t.Fatal(err)
	}
	state, err := d.Observe(n.t.Context(), n.open(n.netns.Path()), pluginName)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, drift := range interception.Diff(record.Plan, state) {
		n.t.Error(drift)
	}
}

// recorded is which dataplane the record names.
func (n *node) recorded() string {
	n.t.Helper()
	record, err := n.journal().Read(web)
	if err != nil {
		n.t.Fatal(err)
	}
	return record.Dataplane
}

// TestDataplaneSetting has both builds do what the setting says, in all commands.
func TestDataplaneSetting(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ setting, want string }{
		{pluginconf.Auto, pluginconf.NFTables}, {pluginconf.NFTables, pluginconf.NFTables}, {pluginconf.IPTables, pluginconf.IPTables},
	} {
		for _, build := range []string{plugin(t), pluginWithIPTables(t)} {
			if test.want == pluginconf.IPTables && build == plugin(t) {
				continue // TestWithoutIPTables
			}
			for mode, edits := range map[string][]string{"REDIRECT": nil, "TPROXY": {`"REDIRECT"`, `"TPROXY"`}} {
				t.Run(test.setting+"/"+filepath.Base(build)+"/"+mode, func(t *testing.T) {
					t.Parallel()
					n := newNode(t, pod(t, edits...))
					n.build = build
					args := n.checked(dataplaneSetting(test.setting))
					for range 2 {
						n.exec("ADD", args).mustSucceed(t)
						n.exec("CHECK", args).mustPass(t)
					}
					if got := n.recorded(); got != test.want {
						t.Errorf("the record has dataplane %q, want %q", got, test.want)
					}
					if test.want == pluginconf.IPTables {
						n.mustObserve(iptables.New(iptables.Options{}))
					}
					if owned := slices.Contains(n.tables(), pluginName); owned != (test.want == pluginconf.NFTables) {
						t.Errorf("got tables %v", n.tables())
					}
					n.exec("DEL", args).mustBeSilent(t)
				})
			}
		}
	}
}

// mustPass wants no error; there may be a log.
func (o outcome) mustPass(t *testing.T) {
	t.Helper()
	if o.code != 0 || o.stdout != "" {
		t.Errorf("got %+v", o)
	}
}

// TestADDExecutesOneProgramForAFamily is what iptables costs a new pod.
func TestADDExecutesOneProgramForAFamily(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		setting  string
		programs int
	}{{pluginconf.Auto, 0}, {pluginconf.NFTables, 0}, {pluginconf.IPTables, 2}} {
		n := newNode(t, pod(t))
		n.build = pluginWithIPTables(t)
		l := n.trace(n.add(dataplaneSetting(test.setting)), 0)
		l.mustSucceed(t)
		if len(l.programs) != test.programs || l.starts < test.programs {
			t.Errorf("%s: ADD started %d processes, and executed %q", test.setting, l.starts, l.programs)
		}
	}
}

// TestAnotherDataplaneTakesOver: CHECK goes by what the pod's ADD used, and another ADD by what is
// set now.
func TestAnotherDataplaneTakesOver(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	n.build = pluginWithIPTables(t)
	for _, setting := range []string{pluginconf.NFTables, pluginconf.IPTables, pluginconf.NFTables} {
		n.exec("ADD", n.add(dataplaneSetting(setting))).mustSucceed(t)
		for _, other := range pluginconf.Dataplanes() {
			n.exec("CHECK", n.checked(dataplaneSetting(other))).mustPass(t)
		}
		if got, owned := n.recorded(), slices.Contains(n.tables(), pluginName); got != setting || owned != (setting == pluginconf.NFTables) {
			t.Errorf("%s: the record has dataplane %q, and there are tables %v", setting, got, n.tables())
		}
	}
}

// TestWithoutIPTables: the small build says what to do, to those alone whom it concerns, and never
// falls back.
func TestWithoutIPTables(t *testing.T) {
	t.Parallel()
	n := newNode(t, pod(t))
	setting := dataplaneSetting(pluginconf.IPTables)
	e := n.exec("ADD", n.add(setting)).mustFail(t, codeUnsupported)
	if !strings.Contains(e.Msg, "has no iptables") || !strings.Contains(e.Details, "istio-cni-iptables") {
		t.Errorf("got %+v", e)
	}
	n.mustHold(false)
	outside := n.add(setting)
	outside.Args = "K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=dns"
	n.exec("ADD", outside).mustSucceed(t)
	n.exec("STATUS", n.checked(setting, `{"cniVersion": "1.1.0"}`)).mustPass(t)

	n.build = pluginWithIPTables(t)
	n.exec("ADD", n.add(setting)).mustSucceed(t)
	n.build = plugin(t)
	e = n.exec("CHECK", n.checked(dataplaneSetting(pluginconf.NFTables))).mustFail(t, codeObserve)
	if !strings.Contains(e.Msg, "they may be in place, which cannot be checked: this build") ||
		!strings.Contains(e.Details, "the pod was made when the node had it") {
		t.Errorf("got %+v", e)
	}
	n.exec("DEL", n.add(setting)).mustBeSilent(t)
}

// TestDataplanesMustBeThere has an importer return nothing to write rules with.
func TestDataplanesMustBeThere(t *testing.T) {
	t.Parallel()
	for want, candidates := range map[string][]choice.Candidate{
		"no dataplane is linked into this build": nil,
		`the dataplane "nftables" is nil`:        {{Name: choice.NFTables}},
		`the dataplane "iptables" is nil`:        {{Name: choice.NFTables, Dataplane: failing{}}, {Name: choice.IPTables}},
	} {
		n := newNode(t, pod(t))
		o := options()
		args := n.add()
		n.runAs(t.Context(), o, "ADD", args).mustSucceed(t)
		o.Dataplanes = func() ([]choice.Candidate, error) { return candidates, nil }
		for _, command := range []string{"ADD", "CHECK"} {
			e := n.runAs(t.Context(), o, command, n.checked()).mustFail(t, types.ErrInternal)
			if !strings.Contains(e.Msg, want) || !strings.Contains(e.Details, "please report it") {
				t.Errorf("%s: got %+v", command, e.Error)
			}
		}
	}
}
