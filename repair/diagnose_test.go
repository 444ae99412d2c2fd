// SPDX-License-Identifier: Apache-2.0

package repair_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/repair"
)

func TestPods(t *testing.T) {
	t.Parallel()
	verdicts, reasons := map[repair.Verdict]bool{}, map[repair.Reason]bool{}
	for _, tc := range podCases() {
		verdicts[tc.verdict], reasons[tc.reason] = true, true
		pod, c := meshPod(tc.pod)
		finding := repair.Diagnose(pod, c)
		action := repair.Decide(pod, finding, node())
		if finding.Verdict != tc.verdict || finding.Reason != tc.reason || action.Do != tc.do {
			t.Errorf("%s: want %s: %s, %s; got\n%s\n%s", tc.name, tc.verdict, tc.reason, tc.do, finding, action)
		}
		checkAction(t, tc.name, pod, finding, action)
	}
	if n := len(podCases()); n < 60 {
		t.Errorf("%d pods: fewer than 60", n)
	}
	for _, v := range []repair.Verdict{
		repair.NotOurs, repair.Healthy, repair.Pending, repair.Unknown, repair.Changed, repair.Outdated, repair.Suspect, repair.Broken,
	} {
		if !verdicts[v] {
			t.Errorf("no pod is %s", v)
		}
	}
	if len(reasons) < 30 {
		t.Errorf("the pods have %d reasons: %v", len(reasons), slices.Sorted(maps.Keys(reasons)))
	}
}

// checkAction checks what holds for the action about any pod.
func checkAction(t *testing.T, name string, pod repair.Pod, f repair.Finding, a repair.Action) {
	t.Helper()
	if a.Why == "" {
		t.Errorf("%s: no reason: %s", name, a)
	}
	if f.Plan != nil && (f.Verdict != repair.Broken || f.NoPlan != "") || f.Verdict == repair.Broken && f.Plan == nil && f.NoPlan == "" {
		t.Errorf("%s: a plan, or a reason why there is none, goes with a broken pod alone: %s", name, f)
	}
	if a.Target != pod.Target() {
		t.Errorf("%s: the target is %v", name, a.Target)
	}
	if (a.Do == repair.ModeRepair) != (a.Plan != nil) {
		t.Errorf("%s: %s with the plan %v", name, a.Do, a.Plan)
	}
	if a.Do == repair.ModeRepair && (pod.HostNetwork || pod.UID == "" || !pod.DeletionTimestamp.IsZero()) {
		t.Errorf("%s: repaired in place", name)
	}
	if (a.Do == repair.ModeDelete || a.Do == repair.ModeEvict || a.Do == repair.ModeLabel) && (a.Target.UID == "" || a.Target.ResourceVersion == "") {
		t.Errorf("%s: %s without preconditions", name, a.Do)
	}
}

// TestPlanIsTheRecord: whatever is observed, a pod with a record is never given today's plan.
func TestPlanIsTheRecord(t *testing.T) {
	t.Parallel()
	for _, tc := range podCases() {
		pod, c := meshPod(tc.pod)
		finding := repair.Diagnose(pod, c)
		record := c.Observed.Record
		switch {
		case finding.Plan == nil:
		case record != nil && record.UID == pod.UID && finding.Plan != record.Plan:
			t.Errorf("%s: the plan is not that of the record: %s", tc.name, finding)
		case record == nil && len(c.Observed.State.Objects) > 0:
			t.Errorf("%s: the plan of today, where something stands: %s", tc.name, finding)
		}
	}
}

func TestEvidence(t *testing.T) {
	t.Parallel()
	loud := failed()
	for name, tc := range map[string]struct {
		pod  change
		want []string
	}{
		"a validator's last end, with what it said quoted": {
			all(loud, edit(func(p *repair.Pod) { p.Statuses[0].Last.Terminated.Message = "no\nrules" })),
			[]string{`validator: init container istio-validation: exit code 126 (Error): "no\nrules", in its last run`},
		},
		"one difference": {
			all(without(), recorded(planned()), holds(widened())),
			[]string{"kernel: nat/output: extra: got tcp dport 9090 -> return"},
		},
		"several differences": {
			all(without(), recorded(planned()), holds(empty())),
			[]string{"kernel: 3 differences, of which the first is nat hook output: missing nat.output.output"},
		},
		"no record": {
			all(without(), today(planned()), holds(planned())),
			[]string{"record: nothing is recorded of the pod: its namespace is compared with what would be planned today"},
		},
		"another pod's record": {
			all(without(), recorded(planned()), record(func(r *repair.Record) { r.UID = "1" })),
			[]string{`record: the record is of another pod of this name, with uid "1"`},
		},
		"a key that is new, and another version": {
			all(recorded(planned()), record(func(r *repair.Record) { r.Planner = "v1.0.0" }), today(widened()), holds(planned())),
			[]string{
				`planner: planned by version "v1.0.0", but this is "v1.1.0"`,
				`annotations: traffic.sidecar.istio.io/excludeOutboundPorts is now "9090", but was of no account`,
			},
		},
		"opted out": {
			all(recorded(planned()), label("sidecar.istio.io/inject", "false")),
			[]string{`annotations: the pod would be left alone now: opted-out (label sidecar.istio.io/inject="false")`},
		},
		"broken, and changed": {
			all(recorded(planned()), today(widened()), holds(empty())),
			[]string{"kernel: ", "annotations: "},
		},
		"a detail": {edit(func(p *repair.Pod) { p.NodeName = "node-2" }), []string{"not-ours: other-node (node-2)"}},
	} {
		pod, c := meshPod(tc.pod)
		finding := repair.Diagnose(pod, c)
		for _, want := range tc.want {
			if !strings.Contains(finding.String(), want) {
				t.Errorf("%s: want %s in\n%s", name, want, finding)
			}
		}
	}
}

func TestFindingHas(t *testing.T) {
	t.Parallel()
	pod, c := meshPod(failed())
	if f := repair.Diagnose(pod, c); !f.Has(repair.EvidenceValidator) || f.Has(repair.EvidenceKernel) {
		t.Error(f)
	}
}

// TestChangedWherever: a key of the pod may be the source of any kind of object, and replace a
// default.
func TestChangedWherever(t *testing.T) {
	t.Parallel()
	source := func(value string) []interception.Source {
		kind := interception.SourceAnnotation
		if value == "*" {
			kind = interception.SourceDefault
		}
		return []interception.Source{{Kind: kind, Key: "example.com/key", Value: value}}
	}
	for name, object := range map[string]func(value string) interception.Object{
		"link":        func(v string) interception.Object { return interception.Link{From: source(v), Why: v} },
		"address":     func(v string) interception.Object { return interception.Address{From: source(v), Why: v} },
		"sysctl":      func(v string) interception.Object { return interception.Sysctl{From: source(v), Why: v} },
		"route":       func(v string) interception.Object { return interception.Route{From: source(v), Why: v} },
		"policy rule": func(v string) interception.Object { return interception.PolicyRule{From: source(v), Why: v} },
		"set":         func(v string) interception.Object { return interception.Set{From: source(v), Why: v} },
		"rule": func(v string) interception.Object {
			rule := interception.Rule{Action: interception.Return{}, From: source(v), Why: v}
			return interception.Table{Chains: []interception.Chain{{Name: "output", Rules: []interception.Rule{rule}}}}
		},
	} {
		made := func(value string) *interception.Plan {
			return &interception.Plan{Owner: "my-mesh", Objects: []interception.Object{object(value)}}
		}
		pod, c := meshPod(recorded(made("*")), today(made("10.0.0.0/8")))
		f := repair.Diagnose(pod, c)
		const want = `annotations: example.com/key is now "10.0.0.0/8", but was "*" by default`
		if f.Verdict != repair.Changed || f.Reason != repair.ReasonAnnotationsChanged || !strings.Contains(f.String(), want) {
			t.Errorf("%s: %s", name, f)
		}
	}
}
