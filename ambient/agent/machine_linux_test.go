// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/roster"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// addMachine gives a pod the interface of Kata Containers, as the runtime does.
func addMachine(t *testing.T, pod *dataplanetest.Pod) {
	t.Helper()
	sandboxtest.Run(t, pod.File(), "", "ip", "link", "add", machineInterface, "type", "veth", "peer", "name", "peer0")
}

// TestE32VirtualMachineIsRefused has the plugin hand over a pod whose application runs in a virtual
// machine.
func TestE32VirtualMachineIsRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	addMachine(t, pod)
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	file, err := os.Open(pod.Path())
	if err != nil {
		t.Fatal(err)
	}
	if decision, err := a.Enrol(t.Context(), sandboxOf("one"), file); !errors.Is(err, ErrVirtualMachine) {
		t.Errorf("Enrol = %+v, %v, want ErrVirtualMachine", decision, err)
	}
	if n.captured(pod) || len(n.members()) > 0 {
		t.Errorf("the pod is captured, and the members are %v", n.members())
	}
}

// TestE32VirtualMachineIsFound has the agent find such a pod by itself: it stays as it is, and the
// status says why.
func TestE32VirtualMachineIsFound(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	addMachine(t, pod)
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.await(func() bool {
		all := a.Status().Pods
		return len(all) == 1 && all[0].Decision.Reason == ReasonVirtualMachine && !all[0].Decision.Capture
	}, func() string { return "the status does not name the machine: " + describe(a) })
	n.awaitRest(a)
	if n.captured(pod) || len(n.members()) > 0 {
		t.Errorf("the pod is captured, and the members are %v", n.members())
	}
}

// TestE32RunningPodBecomesVirtualMachine has the interface come when the pod is enrolled already,
// as Kata's runtime makes it after the plugins. The agent notices it without a round: the pod
// leaves the mesh, its connections live on, and the status says why.
func TestE32RunningPodBecomesVirtualMachine(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("a")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitSelection(a, "a")
	n.connect(pod, 1)
	relayed := n.open(pod)
	addMachine(t, pod)
	n.awaitPods(a, "that it waits for the connection's end", func(pods []Pod) bool {
		return len(pods) == 1 && pods[0].Step == ambient.StepAwaitDrained
	})
	n.connect(pod, 0)
	n.exchange(relayed)
	if err := relayed.Close(); err != nil {
		t.Error(err)
	}
	n.awaitRest(a)
	if n.captured(pod) || n.served(pod) || len(n.members())+len(n.records()) > 0 {
		t.Errorf("captured %t, served %t, members %v, records %v, want nothing", n.captured(pod), n.served(pod), n.members(), n.records())
	}
	if decision := decisionOf(a, "a"); decision.Capture || decision.Reason != ReasonVirtualMachine {
		t.Errorf("the decision is %+v", decision)
	}
	if got := n.statusesOf("a"); !slices.Equal(got, []ambient.Status{ambient.StatusEnabled, ambient.NoStatus}) {
		t.Errorf("the statuses are %q", got)
	}
}

// TestStaticPodByTheRuntimesUID has the plugin hand over a static pod, of which the feed tells the
// mirror, with another UID.
func TestStaticPodByTheRuntimesUID(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pod := n.pod("none")
	a, _ := n.run()
	n.proxy()
	mirror := object("a")
	mirror.Annotations = map[string]string{roster.MirrorAnnotation: "of-the-runtime"}
	n.feed <- told(mirror)
	file, err := os.Open(pod.Path())
	if err != nil {
		t.Fatal(err)
	}
	static := sandboxOf("one")
	static.UID = "of-the-runtime"
	if decision, err := a.Enrol(t.Context(), static, file); err != nil || !decision.Capture {
		t.Fatalf("Enrol = %+v, %v", decision, err)
	}
	n.connect(pod, 1)
	if all := a.Status().Pods; len(all) != 1 || all[0].UID != "a" || all[0].RuntimeUID != "of-the-runtime" {
		t.Errorf("the status is %+v", all)
	}
	for uid, want := range map[string]int{"a": 1, "of-the-runtime": 1, "b": 0} {
		if got := a.Status(uid).Pods; len(got) != want {
			t.Errorf("the status of UID %s is %+v", uid, got)
		}
	}
	if !n.leave(a, static, pod.Path()) || len(n.members()) > 0 {
		t.Errorf("the sandbox is not given up by the runtime's UID: members %v", n.members())
	}
}
