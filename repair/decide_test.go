// SPDX-License-Identifier: Apache-2.0

package repair_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/repair"
)

// decided returns the action for the pod under one rule.
func decided(rule repair.Rule, changes ...change) repair.Action {
	pod, c := meshPod(changes...)
	return repair.Decide(pod, repair.Diagnose(pod, c), repair.Policy{Rules: []repair.Rule{rule}, Label: repair.IstioLabel()})
}

func do(modes ...repair.Mode) repair.Rule { return repair.Rule{Do: modes} }

// TestZeroPolicy: the zero policy reports, and touches nothing.
func TestZeroPolicy(t *testing.T) {
	t.Parallel()
	for _, tc := range podCases() {
		pod, c := meshPod(tc.pod)
		finding := repair.Diagnose(pod, c)
		want := repair.ModeReport
		if tc.verdict == repair.Healthy || tc.verdict == repair.NotOurs || tc.verdict == repair.Pending {
			want = repair.ModeNothing
		}
		if a := repair.Decide(pod, finding, repair.Policy{}); a.Do != want {
			t.Errorf("%s: want %s, got %s", tc.name, want, a)
		}
	}
}

// TestRules has many rules about the pods of the table: only the first matching one counts.
func TestRules(t *testing.T) {
	t.Parallel()
	policy := repair.Policy{Label: repair.IstioLabel(), Rules: []repair.Rule{
		{Namespaces: []string{"bank", "shop"}, OwnerKinds: []string{"StatefulSet"}, Do: []repair.Mode{repair.ModeEvict}},
		{Namespaces: []string{"shop"}, OwnerKinds: []string{repair.NoOwner}, Do: []repair.Mode{repair.ModeDelete}, LoseUnowned: true},
		{Verdicts: []repair.Verdict{repair.Changed, repair.Outdated}, Do: []repair.Mode{repair.ModeEvict}},
		{Verdicts: []repair.Verdict{repair.Broken}, Namespaces: []string{"bank"}, Do: []repair.Mode{repair.ModeNothing}},
		{Namespaces: []string{"shop"}},
		{Do: []repair.Mode{repair.ModeLabel}},
	}}
	bank := edit(func(p *repair.Pod) { p.Namespace = "bank" })
	for name, tc := range map[string]struct {
		pod  change
		want repair.Mode
		why  string
	}{
		"namespace and kind":           {all(failed(), owned("StatefulSet")), repair.ModeEvict, "broken (validator); rule 0"},
		"no owner":                     {all(failed(), unowned()), repair.ModeDelete, "broken (validator); rule 1"},
		"no owner, another namespace":  {all(failed(), unowned(), bank), repair.ModeNothing, "broken (validator); rule 3"},
		"changed":                      {all(recorded(planned()), today(widened()), holds(planned())), repair.ModeEvict, "changed (annotations-changed); rule 2"},
		"broken in another namespace":  {all(failed(), bank), repair.ModeNothing, "broken (validator); rule 3"},
		"a rule that does nothing":     {failed(), repair.ModeNothing, "broken (validator); rule 4"},
		"any namespace":                {all(failed(), edit(func(p *repair.Pod) { p.Namespace = "games" })), repair.ModeLabel, "broken (validator); rule 5"},
		"a verdict that no rule names": {without(), repair.ModeReport, "unknown (not-observed); no rule of the policy is about it"},
		"healthy":                      {all(), repair.ModeNothing, "it is healthy (validated)"},
	} {
		pod, c := meshPod(tc.pod)
		if a := repair.Decide(pod, repair.Diagnose(pod, c), policy); a.Do != tc.want || a.Why != tc.why {
			t.Errorf("%s: want %s: %s; got %s", name, tc.want, tc.why, a)
		}
	}
	if err := policy.Validate(); err != nil {
		t.Error(err)
	}
}

// TestObstacles: preferred modes that cannot be applied are skipped, with the reason.
func TestObstacles(t *testing.T) {
	t.Parallel()
	never := job(repair.RestartNever)
	over := all(validator(ended(126), repair.ContainerState{}), phase(repair.PhaseFailed))
	suspect := repair.Rule{Verdicts: []repair.Verdict{repair.Suspect}, Do: []repair.Mode{repair.ModeRepair, repair.ModeDelete}}
	lose := repair.Rule{Do: []repair.Mode{repair.ModeDelete}, LoseUnowned: true}
	for name, tc := range map[string]struct {
		rule repair.Rule
		pod  change
		want repair.Mode
		why  string // for the first skipped mode
	}{
		"nothing observed":      {do(repair.ModeRepair, repair.ModeEvict), failed(), repair.ModeEvict, "its namespace has not been observed: observe it, and diagnose again"},
		"nothing to compare":    {do(repair.ModeRepair), all(failed(), holds(empty())), repair.ModeReport, "there is neither a record nor a plan of today"},
		"others' rules":         {do(repair.ModeRepair), all(failed(), recorded(planned()), disturbed(planned())), repair.ModeReport, "its rules are in place, but another program's rules are in the way: remove those"},
		"no record":             {do(repair.ModeRepair), all(failed(), today(widened()), holds(planned())), repair.ModeReport, "there is no record, and the namespace holds rules that may be what was meant: have the pod created again"},
		"ended":                 {do(repair.ModeRepair), all(never, over), repair.ModeReport, "its life is over"},
		"not broken":            {suspect, validator(ended(1), repair.ContainerState{}), repair.ModeDelete, "it is suspect, and only broken pods are repaired in place"},
		"never restarted":       {do(repair.ModeDelete, repair.ModeLabel), all(never, over), repair.ModeLabel, `it is never restarted, and its work would be lost: have the rule name the owner kind "Job"`},
		"unowned":               {do(repair.ModeEvict, repair.ModeLabel), all(failed(), unowned()), repair.ModeLabel, "no controller would create it again: set LoseUnowned, or delete it by hand"},
		"unowned, to be lost":   {lose, all(failed(), unowned()), repair.ModeDelete, ""},
		"unowned, never":        {lose, all(over, never, unowned()), repair.ModeReport, `it is never restarted, and its work would be lost: have the rule name the owner kind ""`},
		"static":                {lose, all(failed(), owned("Node")), repair.ModeReport, "it is a static pod, which its node keeps: restart it there"},
		"taken away already":    {do(repair.ModeDelete), all(failed(), condition("DisruptionTarget", "True", "PreemptionByScheduler")), repair.ModeReport, "it is being taken away already: PreemptionByScheduler"},
		"no resourceVersion":    {do(repair.ModeLabel), all(failed(), edit(func(p *repair.Pod) { p.ResourceVersion = "" })), repair.ModeReport, "the pod's UID or resourceVersion isn't known, so that another could be hit"},
		"no such mode":          {do("restart"), failed(), repair.ModeReport, `"restart" is not a mode: name nothing, report, label, delete, evict, repair`},
		"the zero mode":         {do(""), failed(), repair.ModeReport, `"" is not a mode: name nothing, report, label, delete, evict, repair`},
		"nothing comes first":   {do(repair.ModeNothing, repair.ModeDelete), failed(), repair.ModeNothing, ""},
		"nothing is in the way": {do(repair.ModeEvict, repair.ModeDelete), failed(), repair.ModeEvict, ""},
	} {
		a := decided(tc.rule, tc.pod)
		why := ""
		if len(a.Skipped) > 0 {
			why = a.Skipped[0].Why
		}
		if a.Do != tc.want || why != tc.why {
			t.Errorf("%s: want %s, skipped as %q; got %s", name, tc.want, tc.why, a)
		}
		if why != "" && !strings.Contains(a.String(), "not "+string(a.Skipped[0].Mode)+": "+why) {
			t.Errorf("%s: the text does not say what was skipped: %s", name, a)
		}
	}
}

// TestDecideAboutAnother: a finding is about one object in one state.
func TestDecideAboutAnother(t *testing.T) {
	t.Parallel()
	pod, c := meshPod(failed())
	finding := repair.Diagnose(pod, c)
	policy := repair.Policy{Rules: []repair.Rule{do(repair.ModeDelete)}}
	if a := repair.Decide(pod, finding, policy); a.Do != repair.ModeDelete {
		t.Fatal(a)
	}
	for name, f := range map[string]func(*repair.Pod){
		"made anew": func(p *repair.Pod) { p.UID = "0b9e" },
		"changed":   func(p *repair.Pod) { p.ResourceVersion = "4712" },
		"another":   func(p *repair.Pod) { p.Name = "cart-7d9f-5kkq2" },
		"elsewhere": func(p *repair.Pod) { p.Namespace = "bank" },
	} {
		other := pod
		f(&other)
		if a := repair.Decide(other, finding, policy); a.Do != repair.ModeNothing {
			t.Errorf("%s: %s", name, a)
		}
	}
}

// TestDecideAgainstFinding: even a made-up finding does not lead to a forbidden action.
func TestDecideAgainstFinding(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]change{
		"host network": edit(func(p *repair.Pod) { p.HostNetwork = true }),
		"deleted":      edit(func(p *repair.Pod) { p.DeletionTimestamp = added }),
		"ended":        phase(repair.PhaseSucceeded),
		"no UID":       edit(func(p *repair.Pod) { p.UID = "" }),
	} {
		pod, _ := meshPod(change)
		finding := repair.Finding{Of: pod.Target(), Verdict: repair.Broken, Reason: repair.ReasonDrift, Plan: planned()}
		policy := repair.Policy{Rules: []repair.Rule{do(repair.ModeRepair)}}
		if a := repair.Decide(pod, finding, policy); a.Do != repair.ModeReport || a.Plan != nil {
			t.Errorf("%s: %s", name, a)
		}
	}
	pod, _ := meshPod(edit(func(p *repair.Pod) { p.DeletionTimestamp = added }))
	finding := repair.Finding{Of: pod.Target(), Verdict: repair.Broken}
	if a := repair.Decide(pod, finding, repair.Policy{Rules: []repair.Rule{do(repair.ModeEvict)}}); a.Do != repair.ModeReport {
		t.Error(a)
	}
	pod, _ = meshPod()
	finding = repair.Finding{Of: pod.Target(), Verdict: repair.Broken}
	if a := repair.Decide(pod, finding, repair.Policy{Rules: []repair.Rule{do(repair.ModeRepair)}}); a.Do != repair.ModeReport {
		t.Error(a)
	}
}

func TestActionHasWhatItTakes(t *testing.T) {
	t.Parallel()
	pod, c := meshPod(failed())
	policy := repair.Policy{Rules: []repair.Rule{do(repair.ModeLabel)}, Label: repair.Label{Key: "example.com/uncaptured", Value: "yes"}}
	a := repair.Decide(pod, repair.Diagnose(pod, c), policy)
	if a.Label != policy.Label || a.Owner != "ReplicaSet shop/cart-7d9f" || a.Target.UID != "0b9d" || a.Target.ResourceVersion != "4711" {
		t.Errorf("%+v", a)
	}
	policy.Label = repair.Label{} // an empty label is never put on
	if a := repair.Decide(pod, repair.Diagnose(pod, c), policy); a.Do != repair.ModeReport || len(a.Skipped) != 1 || a.Label != policy.Label {
		t.Errorf("%+v", a)
	}
	a = decided(do(repair.ModeRepair), recorded(planned()), today(widened()), holds(empty()))
	if a.Do != repair.ModeRepair || a.Plan.Fingerprint() != planned().Fingerprint() {
		t.Errorf("what is applied is not what was recorded: %s", a)
	}
}

func TestPolicyValidate(t *testing.T) {
	t.Parallel()
	good := repair.Policy{Rules: []repair.Rule{
		{},
		do(repair.ModeRepair, repair.ModeEvict, repair.ModeReport),
		{OwnerKinds: []string{"Job", repair.NoOwner}, Verdicts: []repair.Verdict{repair.Changed}, Do: []repair.Mode{repair.ModeEvict}},
	}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	nameless := repair.Policy{Rules: []repair.Rule{do(repair.ModeLabel)}}
	if err := nameless.Validate(); !errors.Is(err, repair.ErrPolicy) {
		t.Errorf("a policy that labels has no label: %v", err)
	}
	bad := repair.Policy{
		Label: repair.Label{Value: "true"},
		Rules: []repair.Rule{
			{},
			do("restart"), do(repair.ModeLabel, repair.ModeLabel), do(repair.ModeReport, repair.ModeDelete),
			{OwnerKinds: []string{"Deployment"}},
			{OwnerKinds: []string{"CronJob"}},
			{Namespaces: []string{""}},
			{Verdicts: []repair.Verdict{repair.Healthy}},
			{Verdicts: []repair.Verdict{repair.Broken, repair.Changed}, Do: []repair.Mode{repair.ModeRepair}},
		},
	}
	err := bad.Validate()
	if !errors.Is(err, repair.ErrPolicy) {
		t.Fatalf("got %v", err)
	}
	want := `invalid repair policy: rule 1: "restart" is not a mode: name nothing, report, label, delete, evict, repair
invalid repair policy: rule 2: label is named twice
invalid repair policy: rule 3: delete comes after report, which can always be done
invalid repair policy: rule 4: the controller of a Deployment's pods is a ReplicaSet: name that
invalid repair policy: rule 5: the controller of a CronJob's pods is a Job: name that
invalid repair policy: rule 6: a namespace has no name: leave the list empty for all
invalid repair policy: rule 7: no rule can act on the verdict "healthy": name broken, suspect, unknown, changed, outdated
invalid repair policy: rule 8: only broken pods are repaired in place: others have their rules, or it is unknown which
invalid repair policy: the label has the value "true" and no key`
	if err.Error() != want {
		t.Errorf("got\n%s", err)
	}
}
