// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/repair"
	"github.com/meshcni/meshcni/repair/controller"
)

// namespaces simulate those of a node: a pod has its rules, or has lost them.
type namespaces struct {
	plan *interception.Plan

	mu       sync.Mutex
	lost     map[string]bool  // names of pods
	blind    map[string]error // why a pod's namespace is not found
	stubborn error            // why nothing is repaired
	observed map[string]int
	repaired []string
}

func newNamespaces(t *testing.T, lost ...string) *namespaces {
	t.Helper()
	plan, err := interception.Build("my-mesh", func(b *interception.Builder) {
		output := b.NAT("output")
		output.Entry(interception.Output, interception.Match{L4: interception.TCP()}, "connections from the pod")
		output.Do("output.rest", interception.Match{L4: interception.TCP()}, interception.RedirectTo{Port: 15001}, "all of them")
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &namespaces{plan: plan, lost: map[string]bool{}, blind: map[string]error{}, observed: map[string]int{}}
	for _, name := range lost {
		n.lost[name] = true
	}
	return n
}

// Observe returns the observation of a pod with a record.
func (n *namespaces) Observe(_ context.Context, p repair.Pod) (repair.Observation, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observed[p.Name]++
	if err := n.blind[p.Name]; err != nil {
		return repair.Observation{}, err
	}
	state := interception.State{Owner: n.plan.Owner, Objects: n.plan.Objects}
	if n.lost[p.Name] {
		state.Objects = nil
	}
	return repair.Observation{State: &state, UID: p.UID, Record: &repair.Record{UID: p.UID, Plan: n.plan}, Today: n.plan}, nil
}

// Repair restores the rules.
func (n *namespaces) Repair(_ context.Context, p repair.Pod, plan *interception.Plan) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stubborn != nil {
		return n.stubborn
	}
	if plan != n.plan {
		return errors.New("another plan")
	}
	n.repaired = append(n.repaired, p.Name)
	delete(n.lost, p.Name)
	return nil
}

// change changes the node.
func (n *namespaces) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
}

// TestScan finds a pod that has lost its rules while its validator reports nothing; the pod is
// reported first, and repaired in the next round.
func TestScan(t *testing.T) {
	t.Parallel()
	n := newNamespaces(t, "web-0")
	o := options(repair.ModeRepair)
	o.Namespaces = n
	f := start(t, o, pod("web-0", validated(0)), pod("web-1", validated(0)), pod("web-2"))
	f.awaitScan(t)
	f.awaitDone(t, repair.ModeReport, controller.ResultSuccess, 1)
	f.wantEvents(t, [3]string{"BrokenPod", "web-0", "reported first"})
	n.change(func() {
		if len(n.repaired) > 0 || n.observed["web-1"] != 1 || n.observed["web-2"] != 1 {
			t.Errorf("repaired %v, observed %v", n.repaired, n.observed)
		}
	})
	f.Scan()
	f.awaitDone(t, repair.ModeRepair, controller.ResultSuccess, 1)
	f.await(t, "healthy", func() bool { return f.Status().Pods[repair.Healthy] == 3 })
	f.wantEvents(t, [3]string{"BrokenPod", "web-0"}, [3]string{"RepairBrokenPod", "web-0", "drift"})
}

// TestActAtStart repairs the pod at once.
func TestActAtStart(t *testing.T) {
	t.Parallel()
	o := options(repair.ModeRepair)
	o.Namespaces, o.ActAtStart = newNamespaces(t, "web-0"), true
	f := start(t, o, pod("web-0"))
	f.await(t, "healthy", func() bool { return f.Status().Pods[repair.Healthy] == 1 })
	f.wantEvents(t, [3]string{"RepairBrokenPod", "web-0", "done"})
}

// TestPodsAfterTheStart are handled at once, and looked at once a round.
func TestPodsAfterTheStart(t *testing.T) {
	t.Parallel()
	n := newNamespaces(t, "web-0")
	o := options(repair.ModeRepair)
	o.Namespaces = n
	f := start(t, o)
	f.awaitScan(t)
	f.cluster.Put(pod("web-0"), pod("web-1"))
	f.awaitDone(t, repair.ModeRepair, controller.ResultSuccess, 1)
	f.await(t, "healthy", func() bool { return f.Status().Pods[repair.Healthy] == 2 })
	relabelled := pod("web-1")
	// This has no effect on a pod with a record.
	relabelled.Labels = map[string]string{"sidecar.istio.io/inject": "false"}
	f.cluster.Put(relabelled)
	f.await(t, "not ours", func() bool { return f.Status().Pods[repair.NotOurs] == 1 })
	f.Scan()
	f.await(t, "changed", func() bool { return f.Status().Pods[repair.Changed] == 1 })
	n.change(func() {
		if n.observed["web-1"] != 2 {
			t.Errorf("observed %v", n.observed)
		}
	})
}

// TestUnseen: a namespace that cannot be looked at is tried again before the pod is deleted.
func TestUnseen(t *testing.T) {
	t.Parallel()
	n := newNamespaces(t, "web-0")
	n.blind["web-0"] = errors.New("no namespace has its address")
	o := options(repair.ModeRepair, repair.ModeDelete)
	o.Namespaces = n
	f := start(t, o, broken("web-0"))
	f.await(t, "unseen", func() bool { return f.Status().Unseen == 1 && len(f.told()) > 0 })
	if outcome := f.told()[0]; outcome.Unseen == nil || outcome.Action.Do != repair.ModeReport {
		t.Errorf("got %+v", outcome)
	}
	n.change(func() { delete(n.blind, "web-0") })
	f.awaitDone(t, repair.ModeRepair, controller.ResultSuccess, 1)
	if _, found := f.cluster.Pod("shop", "web-0"); !found {
		t.Error("it was deleted")
	}
}

// TestFailedPod has a pod of a Job whose validator made it fail: it is reported, but has no
// namespace to look at, and does not count among the pods that bypass the mesh.
func TestFailedPod(t *testing.T) {
	t.Parallel()
	n := newNamespaces(t, "job-0")
	n.blind["job-0"] = errors.New("it has no namespace any more")
	o := options(repair.ModeReport)
	o.Namespaces = n
	failed := pod("job-0")
	failed.Object = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "job-0", "uid": "uid-job-0",
"annotations": {"sidecar.istio.io/status": "{}"}, "labels": {"security.istio.io/tlsMode": "istio"}},
"spec": {"nodeName": "a", "restartPolicy": "Never", "initContainers": [{"name": "istio-validation"}],
"containers": [{"name": "app"}, {"name": "istio-proxy"}]},
"status": {"phase": "Failed", "podIPs": [{"ip": "10.244.0.7"}], "initContainerStatuses": [
{"name": "istio-validation", "state": {"terminated": {"exitCode": 126}}}]}}`
	f := start(t, o, failed)
	f.awaitScan(t)
	f.await(t, "told", func() bool { return len(f.told()) > 0 })
	if outcome := f.told()[0]; outcome.Finding.Verdict != repair.Broken || outcome.Unseen != nil {
		t.Errorf("it is told %+v", outcome)
	}
	if s := f.Status(); s.Unseen != 0 || s.Pods[repair.Broken] != 0 {
		t.Errorf("the status is %+v", s)
	}
}

// TestNotRepaired reports the reason.
func TestNotRepaired(t *testing.T) {
	t.Parallel()
	n := newNamespaces(t, "web-0")
	n.stubborn = errors.New("it is the host's namespace")
	o := options(repair.ModeRepair)
	o.Namespaces, o.ActAtStart = n, true
	f := start(t, o, pod("web-0"))
	f.awaitDone(t, repair.ModeRepair, controller.ResultFail, 1)
	f.await(t, "told", func() bool { return len(f.cluster.Events()) > 0 })
	f.wantEvents(t, [3]string{"RepairBrokenPod", "web-0", "repair failed: it is the host's namespace"})
}

// TestMessagesAreBounded cuts a message that is too long for an event, and marks the cut.
func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	n := newNamespaces(t, "web-0")
	n.stubborn = errors.New(strings.Repeat("ö", 1000))
	o := options(repair.ModeRepair)
	o.Namespaces, o.ActAtStart = n, true
	f := start(t, o, pod("web-0"))
	f.await(t, "told", func() bool { return len(f.cluster.Events()) > 0 })
	if message := f.cluster.Events()[0].Message; len(message) > 1024 || !strings.HasSuffix(message, "(the log has all)") {
		t.Errorf("%d bytes: %s", len(message), message)
	}
}
