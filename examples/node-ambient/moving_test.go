// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
)

// known is an agent that deals with pods, and has seen the same of each.
type known struct {
	meshAgent

	pods []string
	seen ambient.Seen
	step ambient.Step
}

func (k known) Status(...string) (status agent.Status) {
	for _, uid := range k.pods {
		status.Pods = append(status.Pods, agent.PodStatus{
			Pod: agent.Pod{UID: uid, Namespace: "shop", Name: uid, Seen: k.seen, Step: k.step, Since: time.Unix(1, 0)},
		})
	}
	return status
}

// TestStatusWhileThePodMoves has a pod that waits for the new form: it is captured as long as the
// former form captures it, and at the step of the new one. Once the new form captures the pod, it
// does not matter what the former agent still has.
func TestStatusWhileThePodMoves(t *testing.T) {
	t.Parallel()
	inFormer := ambient.Seen{Rules: ambient.PlannedRules, InSets: true, Proxy: ambient.ProxyServes}
	draining := ambient.Seen{Rules: ambient.DrainingRules, InSets: true, Proxy: ambient.ProxyServes}
	for name, test := range map[string]struct {
		former, seen ambient.Seen
		step         ambient.Step
		rules        string
		inSets       bool
	}{
		"without the new proxy": {inFormer, ambient.Seen{Proxy: ambient.ProxyTold}, ambient.StepAwaitProxy, "planned", true},
		"waits for its turn":    {inFormer, ambient.Seen{Proxy: ambient.ProxyServes}, ambient.StepAwaitTurn, "planned", true},
		"is prepared":           {inFormer, ambient.Seen{Proxy: ambient.ProxyServes, Rules: ambient.DrainingRules}, ambient.StepAwaitTurn, "planned", true},
		"has the turn":          {inFormer, ambient.Seen{Proxy: ambient.ProxyServes, InSets: true}, ambient.StepApply, "planned", true},
		"captured by none":      {draining, ambient.Seen{Proxy: ambient.ProxyTold}, ambient.StepAwaitProxy, "none", false},
		"has moved":             {draining, ambient.Seen{Proxy: ambient.ProxyServes, Rules: ambient.PlannedRules, InSets: true}, "", "planned", true},
	} {
		m := newMoves(t, ambientconf.ModeInPod, 1)
		m.from.operators = known{pods: []string{"pod-0"}, seen: test.former}
		status := moving{known{pods: []string{"pod-0"}, seen: test.seen, step: test.step}, m.move}.Status()
		if len(status.Pods) != 1 {
			t.Fatalf("%s: the pods are %+v, want one", name, status.Pods)
		}
		got := podState(status.Pods[0])
		if got.Rules != test.rules || got.InSets != test.inSets || got.Step != string(test.step) || got.Listeners != test.seen.Proxy.String() {
			t.Errorf("%s: the pod is %+v", name, got)
		}
	}
}

// identified is an agent whose feed has told of pods with which it does not deal.
type identified struct {
	meshAgent

	pods []string
}

func (i identified) Status(...string) (status agent.Status) {
	for _, uid := range i.pods {
		status.Pods = append(status.Pods, agent.PodStatus{
			Pod: agent.Pod{UID: uid, Namespace: "shop", Name: uid}, Decision: interception.Decision{Reason: "not-selected"},
		})
	}
	return status
}

// TestStatusOfAPodThatLeaves has a pod that is not wanted any more: the former agent alone deals
// with it.
func TestStatusOfAPodThatLeaves(t *testing.T) {
	t.Parallel()
	m := newMoves(t, ambientconf.ModeInPod, 1)
	m.from.operators = known{pods: []string{"pod-0"}, seen: ambient.Seen{Rules: ambient.DrainingRules}, step: ambient.StepAwaitDrained}
	status := moving{identified{pods: []string{"pod-0"}}, m.move}.Status()
	if len(status.Pods) != 1 {
		t.Fatalf("the pods are %+v, want one", status.Pods)
	}
	if got := podState(status.Pods[0]); !got.Managed || got.Rules != "draining" || got.Step != "await-drained" || got.Reason != "not-selected" {
		t.Errorf("the pod is %+v", got)
	}
}

// TestStatusIsSorted has both agents know pods: the answer has them by name.
func TestStatusIsSorted(t *testing.T) {
	t.Parallel()
	m := newMoves(t, ambientconf.ModeInPod, 4)
	m.from.operators = known{pods: []string{"pod-0", "pod-2", "pod-3"}}
	var got []string
	for _, pod := range (moving{known{pods: []string{"pod-1", "pod-3"}}, m.move}).Status().Pods {
		got = append(got, pod.Name)
	}
	if want := []string{"pod-0", "pod-1", "pod-2", "pod-3"}; !slices.Equal(got, want) {
		t.Errorf("the pods are %q, want %q", got, want)
	}
}

// enrols is what an agent does with a new sandbox.
type enrols func()

func (e enrols) Enrol(context.Context, podnetns.Pod, *os.File) (interception.Decision, error) {
	e()
	return interception.Decision{}, nil
}

func (enrols) Leave(context.Context, podnetns.Pod, *os.File) (held bool, err error) {
	return false, nil
}

// TestNewSandboxOfAStaticPod has a runtime that tells another UID than the pod's, or none, and a
// feed that tells of the pod while the plugin waits, or has told of it before.
func TestNewSandboxOfAStaticPod(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{ambientconf.ModeInPod, ambientconf.ModeNode} {
		for _, uid := range []string{"pod-0", "runtime-pod-0", ""} {
			for _, told := range []bool{false, true} {
				m := newMoves(t, mode, 3)
				lookAtAll := func() {
					for _, uid := range []string{"pod-1", "pod-0", "pod-2"} {
						m.look(uid)
					}
				}
				if told {
					lookAtAll()
				}
				m.to.plugin = enrols(lookAtAll)
				if _, err := (moving{move: m.move}).Enrol(t.Context(), podnetns.Pod{Namespace: "shop", Name: "pod-0", UID: uid}, nil); err != nil {
					t.Error(err)
				}
				if next, _ := m.decide(); m.waits("pod-0") || !m.waits("pod-2") || !slices.Contains(next.new, "pod-0") {
					t.Errorf("from %s, told of %q: pod-0 is held: %t, pod-2: %t, next is %+v", mode, uid, m.waits("pod-0"), m.waits("pod-2"), next)
				}
			}
		}
	}
}

// TestOldSandboxOfAStaticPod has the plugin give up before the feed tells of the pod. The runtime
// then makes another sandbox, so that this one has no right to be captured out of turn.
func TestOldSandboxOfAStaticPod(t *testing.T) {
	t.Parallel()
	m := newMoves(t, ambientconf.ModeInPod, 2)
	m.to.plugin = enrols(func() {})
	for range 2 {
		if _, err := (moving{move: m.move}).Enrol(t.Context(), podnetns.Pod{Namespace: "shop", Name: "pod-1"}, nil); err != nil {
			t.Error(err)
		}
	}
	m.look("pod-1")
	if !m.waits("pod-1") || len(m.expected) > 0 {
		t.Errorf("pod-1 is held: %t; expected are %v", m.waits("pod-1"), m.expected)
	}
}

// TestWaitsAreNoFailure has the former agent wait for the connections of a pod, after a failure:
// that does not mean that the pod cannot leave, so that the next one waits.
func TestWaitsAreNoFailure(t *testing.T) {
	t.Parallel()
	m := newMoves(t, ambientconf.ModeInPod, 2)
	m.look("pod-0")
	m.look("pod-1")
	m.settle()
	captures := ambient.Seen{Rules: ambient.PlannedRules}
	m.seeFormer(agent.Pod{UID: "pod-0", Wanted: ambient.Wanted{Enrolled: true}, Step: ambient.StepTell, Err: errNoRoom})
	m.seeFormer(agent.Pod{UID: "pod-0", Step: ambient.StepAwaitDrained, Seen: captures, Err: errNoRoom})
	if m.settle(); m.failure("pod-0") != nil || !m.waits("pod-1") {
		t.Errorf("pod-0 cannot leave: %v, pod-1 is held: %t", m.failure("pod-0"), m.waits("pod-1"))
	}
	m.seeFormer(agent.Pod{UID: "pod-0", Step: ambient.StepRemove, Seen: captures, Err: errNoRoom})
	if m.failure("pod-0") == nil {
		t.Error("it cannot leave, and that is not noted")
	}
}
