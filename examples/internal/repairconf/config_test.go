// SPDX-License-Identifier: Apache-2.0

package repairconf_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/examples/internal/repairconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/repair"
)

func ExampleParseRules() {
	rules, err := repairconf.ParseRules("owners=Job do=delete; namespaces=shop,bank do=evict,label")
	fmt.Println(len(rules), rules[0].OwnerKinds, rules[1].Do, err)
	// Output: 2 [Job] [evict label] <nil>
}

func TestRules(t *testing.T) {
	t.Parallel()
	got, err := repairconf.ParseRules(" owners=none,Job verdicts=broken,suspect do=label lose-unowned ;; do=report ")
	want := []repair.Rule{
		{
			OwnerKinds: []string{repair.NoOwner, "Job"}, Verdicts: []repair.Verdict{repair.Broken, repair.Suspect},
			Do: []repair.Mode{repair.ModeLabel}, LoseUnowned: true,
		},
		{Do: []repair.Mode{repair.ModeReport}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if rules, err := repairconf.ParseRules(""); len(rules) != 0 || err != nil {
		t.Errorf("got %v, %v", rules, err)
	}
	for _, bad := range []string{
		"do", "do=", "do=heal", "do=report,label", "owners=Deployment do=label", "namespaces= do=label", "lose-unowned=yes", "namespace=shop",
		"verdicts=healthy do=label",
	} {
		if rules, err := repairconf.ParseRules(bad); err == nil {
			t.Errorf("%q is taken: %+v", bad, rules)
		}
	}
}

func TestLimit(t *testing.T) {
	t.Parallel()
	if l, err := repairconf.ParseLimit("3/1m"); err != nil || l != (repair.Limit{Burst: 3, Every: time.Minute}) {
		t.Errorf("got %+v, %v", l, err)
	}
	for _, bad := range []string{"", "3", "3/", "x/1m", "3/1", "-1/1m"} {
		if l, err := repairconf.ParseLimit(bad); err == nil {
			t.Errorf("%q is %+v", bad, l)
		}
	}
	if _, err := repairconf.ParseLimit("20000/1m"); !errors.Is(err, repair.ErrPolicy) {
		t.Errorf("got %v", err)
	}
}

// TestConfigIsJSON checks the form in which the daemon passes it on.
func TestConfigIsJSON(t *testing.T) {
	t.Parallel()
	config := repairconf.Config{
		ExcludeNamespaces: []string{"kube-system"}, AgentNamespace: "istio-system", AgentName: "istio-cni-node",
		SidecarAnnotation: "sidecar.istio.io/status", Validator: repair.IstioValidator(), LabelSelector: "a=b",
		Policy: repair.Policy{Rules: []repair.Rule{{OwnerKinds: []string{""}, Do: []repair.Mode{repair.ModeEvict}}}, Label: repair.IstioLabel()},
		Limits: repair.DefaultLimits(), Resync: time.Minute, ActAtStart: true,
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	var got repairconf.Config
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	criteria := got.Criteria("node-1", "v1")
	pod := interception.Pod{Namespace: "shop", Name: "web-0", Containers: []interception.Container{{Name: "istio-proxy"}}}
	if d := criteria.Mesh.Decide(pod); d.Capture || criteria.Node != "node-1" || criteria.Planner != "v1" {
		t.Errorf("%v by %+v", d, criteria)
	}
	got.SidecarAnnotation = ""
	if err := got.Mesh().Validate(); err != nil {
		t.Error(err)
	}
	if d := got.Criteria("node-1", "v1").Mesh.Decide(pod); !d.Capture {
		t.Errorf("%v without an annotation that counts", d)
	}
}
