// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// hostForm is what ambient mode has on the host, with one form of capture.
type hostForm struct {
	plan func(*testing.T, interception.Facts, *nodes.Place) *interception.Plan
	set  interception.SetName
	says []string // that status says
}

func inPodForm() hostForm {
	return hostForm{
		func(t *testing.T, facts interception.Facts, _ *nodes.Place) *interception.Plan {
			t.Helper()
			branch := ambient.Branch{Link: "vlan1a2b3c", Table: 101, Priority: 10, Pod: netip.MustParseAddr("10.1.2.3")}
			plan, err := ambient.HostPlan(ambient.IstioNumbers(), facts, ambientconf.Owner, branch)
			if err != nil {
				t.Fatal(err)
			}
			return plan
		},
		ambient.ProbeSet(interception.IPv4),
		[]string{"\npolicy rule v4 priority 512 ", "\nset probes-v4 v4 live addresses", "\ntable nat\n", "snat to 169.254.7.127"},
	}
}

func onNodeForm() hostForm {
	return hostForm{
		func(t *testing.T, facts interception.Facts, proxy *nodes.Place) *interception.Plan {
			t.Helper()
			plan, err := ambient.NodePlan(ambient.NodeProxy{Addresses: proxy.Addresses, Namespace: "proxy"}, ambient.IstioNodeNumbers(), facts, ambientconf.NodeOwner)
			if err != nil {
				t.Fatal(err)
			}
			return plan
		},
		ambient.MeshedSet(interception.IPv4),
		[]string{
			"\nlink istioin veth", "\naddress 192.168.126.1/30 dev istioin ", "\nsysctl ipv4/conf/istioout/rp_filter = 2 ",
			"\nroute unicast 0.0.0.0/0 dev istioout via 192.168.127.2 table 101 ", "\npolicy rule v4 priority 101 mark 0x100/0x120 table 101 ",
			"\nset meshed-v4 v4 live addresses", "\ntable mangle\n", "  chain capture\n", "-> set connmark 0x100/0x120 ",
		},
	}
}

// TestAmbientStatusOfHost applies what each form of capture has on the host by each dataplane. The
// command lists all of that, to the last object, and nothing when that is removed.
func TestAmbientStatusOfHost(t *testing.T) {
	t.Parallel()
	candidates, err := standard.Candidates(nftables.Options{}, iptables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for form, test := range map[string]hostForm{"in the pods": inPodForm(), "on the node": onNodeForm()} {
		for _, by := range candidates {
			t.Run(form+" by "+by.Name, func(t *testing.T) {
				t.Parallel()
				on := nodes.New(t)[0]
				test.run(t, on, on.NewPod("proxy", interception.IPv4), by)
			})
		}
	}
}

func (form hostForm) run(t *testing.T, on *nodes.Node, proxy *nodes.Place, by choice.Candidate) {
	t.Helper()
	n := newNode(t)
	args := []string{"ambient", "status", "--host", "--mounted-proc-dir=" + on.Roots().Proc}
	if out, _ := n.command(exitOK, args...); !strings.Contains(out, "nothing of ambient mode is there") {
		t.Errorf("a host that has nothing:\n%s", out)
	}
	facts, err := netfacts.Read(on.Host.Netns)
	if err != nil {
		t.Fatal(err)
	}
	plan := form.plan(t, facts, proxy)
	if err := by.Dataplane.Apply(t.Context(), on.Host.Netns.With("proxy", proxy.Netns), plan); err != nil {
		t.Fatal(err)
	}
	member := netip.MustParseAddr("10.1.2.3")
	dataplane, err := choice.New(by)
	if err == nil {
		err = dataplane.UpdateSet(t.Context(), on.Host.Netns, plan.Owner, form.set, interception.SetEdit{Add: map[netip.Addr]string{member: "7f0b"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	out, _ := n.command(exitOK, args...)
	for _, want := range append(form.says, "\nmembers of "+string(form.set)+":\n  10.1.2.3  7f0b\n") {
		if !strings.Contains(out, want) {
			t.Errorf("status lacks %q:\n%s", want, out)
		}
	}
	form.asJSON(t, n, args, plan, map[netip.Addr]string{member: "7f0b"})
	if err := by.Dataplane.Remove(t.Context(), on.Host.Netns, plan.Owner); err != nil {
		t.Fatal(err)
	}
	if out, _ := n.command(exitOK, args...); !strings.Contains(out, "nothing of ambient mode is there") {
		t.Errorf("a host from which all was removed:\n%s", out)
	}
}

// asJSON checks that the command has each object of the plan, and the members of the set.
func (form hostForm) asJSON(t *testing.T, n *testNode, args []string, plan *interception.Plan, members map[netip.Addr]string) {
	t.Helper()
	report := n.hostReport(exitOK, args...)
	text, err := plan.MarshalJSON()
	var want holding
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Holds) != 1 {
		t.Fatalf("status has what %d owners have, want one", len(report.Holds))
	}
	if diff := cmp.Diff(want.kinds(), report.Holds[0].kinds()); diff != "" {
		t.Errorf("the objects by kind (-plan +status):\n%s", diff)
	}
	if !maps.Equal(report.Members[form.set], members) || !strings.Contains(report.Namespace, "net:[") || len(report.Deviations) > 0 {
		t.Errorf("status has the members %v of %s and the deviations %v, want the members %v alone", report.Members, report.Namespace, report.Deviations, members)
	}
}

// printed is what "ambient status --host -o json" prints.
type printed struct {
	Namespace  string
	Holds      []holding
	Members    map[interception.SetName]map[netip.Addr]string
	Deviations []hostDeviation
}

// holding are objects, each under the name of its kind.
type holding struct{ Objects []map[string]json.RawMessage }

func (n *testNode) hostReport(code int, args ...string) (report printed) {
	n.t.Helper()
	out, _ := n.command(code, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		n.t.Fatalf("%v:\n%s", err, out)
	}
	return report
}

// kinds counts the objects by kind, and the rules and hooks of the tables.
func (h holding) kinds() map[string]int {
	count := map[string]int{}
	for _, object := range h.Objects {
		for kind, text := range object {
			count[kind]++
			if kind != "table" {
				continue
			}
			for _, part := range []string{"action", "hook"} {
				count[part] += strings.Count(string(text), `"`+part+`":`)
			}
		}
	}
	return count
}

// TestAmbientStatusOfHostDeviates has a route of another program in a table of the mesh.
func TestAmbientStatusOfHostDeviates(t *testing.T) {
	t.Parallel()
	n, on := newNode(t), nodes.New(t)[0]
	facts, err := netfacts.Read(on.Host.Netns)
	if err != nil {
		t.Fatal(err)
	}
	dataplane, err := nftables.New(nftables.Options{})
	if err == nil {
		proxy := on.NewPod("proxy", interception.IPv4)
		err = dataplane.Apply(t.Context(), on.Host.Netns.With("proxy", proxy.Netns), onNodeForm().plan(t, facts, proxy))
	}
	if err != nil {
		t.Fatal(err)
	}
	sandboxtest.Run(t, on.Host.Netns.File(), "", "nft", "add", "element", "inet", "istio-node", "set-meshed-v4", "{ 10.1.2.4 }")
	sandboxtest.Run(t, on.Host.Netns.File(), "", "ip", "route", "add", "198.51.100.0/24", "dev", "istioin", "table", "101")
	proc := "--mounted-proc-dir=" + on.Roots().Proc
	if out, _ := n.command(exitNotRight, "ambient", "status", "--host", proc); !strings.Contains(out, "another program's: route unicast 198.51.100.0/24 dev istioin") || !strings.Contains(out, "  10.1.2.4  of another program\n") {
		t.Errorf("status does not name the route and the member:\n%s", out)
	}
	if all := n.hostReport(exitNotRight, "ambient", "status", "--host", proc).Deviations; len(all) != 1 || !all[0].Foreign {
		t.Errorf("the deviations are %+v, want another program's", all)
	}
	missing := "--mounted-proc-dir=" + n.cacheDir
	if _, said := n.command(exitFailure, "ambient", "status", "--host", missing); !strings.Contains(said, "look for what ambient mode has") {
		t.Errorf("without the host's proc file system: %s", said)
	}
	if _, said := n.command(exitUsage, "ambient", "status", "--host", "shop/web-0"); !strings.Contains(said, "name no pod") {
		t.Errorf("with a pod: %s", said)
	}
}
