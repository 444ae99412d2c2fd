// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/examples/internal/ambientnews"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/plugin"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// The tests of this file have the program, a source and a proxy, and pods of kinds of which users
// complain (docs/ambient-complaints.md).

// awaitEnrolled waits until the program reports that the pod is as wanted.
func awaitEnrolled(lines <-chan ambientnews.Line) {
	for line := range lines {
		if line.Pod != nil && line.Pod.Wanted && line.Pod.Step == "" && line.Pod.Error == "" {
			return
		}
	}
}

// TestE14PodIsFoundWithoutAPath has a pod that runs, whose namespace is mounted where the program
// cannot see it: a process in the cgroup of one of its containers leads to it.
func TestE14PodIsFoundWithoutAPath(t *testing.T) {
	t.Parallel()
	expectFound(t, fakenode.Cgroup(fakenode.UID, "docker"))
}

// TestE14PodIsFoundByContainerIDAlone has a runtime whose cgroups do not name the pod: only the id
// of the pod's sandbox, which is also in libcni's cache, leads to the namespace.
func TestE14PodIsFoundByContainerIDAlone(t *testing.T) {
	t.Parallel()
	for name, cgroup := range map[string]string{
		"cgroupfs": "0::/docker/" + fakenode.Container + "\n",
		"systemd":  "0::/system.slice/docker-" + fakenode.Container + ".scope\n",
		"nested":   "4:memory:/../../lxc/node-1/docker/" + fakenode.Container + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectFound(t, cgroup)
		})
	}
}

// expectFound starts the program on a node with a pod that runs, with a process in the cgroup. No
// path to the pod's namespace is visible. The pod's connections must go through the proxy.
func expectFound(t *testing.T, cgroup string) {
	t.Helper()
	one := webPod()
	one.Name, one.UID, one.Phase, one.Addresses = "cart-0", fakenode.UID, "Running", []netip.Addr{netip.MustParseAddr("10.244.1.10")}
	dir, _ := feedPods(t, one)
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{})
	node := fakenode.New(t)
	node.Result(fakenode.Container, "/var/run/docker/netns/3e1c", fakenode.UID)
	node.Process(pod.Path(), cgroup)
	lines, end := launch(t, arguments(dir, "-proc="+node.Roots.Proc, "-netns="+filepath.Join(dir, "none"), "-results="+node.Roots.Results)...)
	awaitSocket(t, filepath.Join(dir, "pluginevent.sock"))
	proxy := startProxy(t, dir)
	awaitEnrolled(lines)
	relayed(t, pod, proxy, 1)
	if code := end(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestE21PodWithUsersOfItsOwn has a pod with hostUsers: false join the mesh and leave it, with each
// dataplane: its packets go through the proxy, and then past it.
func TestE21PodWithUsersOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, dataplane := range []string{"nftables", "iptables"} {
		t.Run(dataplane, func(t *testing.T) {
			t.Parallel()
			dir, _ := feedPods(t, webPod())
			launch(t, arguments(dir, `-settings={"noHost":true,"dataplane":"`+dataplane+`"}`)...)
			events := filepath.Join(dir, "pluginevent.sock")
			awaitSocket(t, events)
			proxy := startProxy(t, dir)
			pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{OwnUsers: true})
			relayed(t, pod, proxy, 0)
			if decision, err := enrol(t, events, pod, time.Minute); err != nil || !decision.Capture {
				t.Fatalf("the plugin gets %+v, %v", decision, err)
			}
			relayed(t, pod, proxy, 1)
			if left, err := event.Withdraw(t.Context(), events, web(), func(event.PodState) {}); err != nil || len(left) > 0 {
				t.Fatalf("left %v, %v", left, err)
			}
			relayed(t, pod, proxy, 0)
		})
	}
}

// TestE25AnnotationWithoutEffectIsReported has a pod try to opt out by the annotation that the
// agent writes. The log says once that this has no effect, and operators are told, too.
func TestE25AnnotationWithoutEffectIsReported(t *testing.T) {
	t.Parallel()
	disabled := webPod()
	disabled.Annotations = map[string]string{"ambient.istio.io/redirection": "disabled"}
	dir, _ := feedPods(t, disabled)
	p := begin(t, build(t), arguments(dir)...)
	events := filepath.Join(dir, "pluginevent.sock")
	awaitSocket(t, events)
	startProxy(t, dir)
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{})
	for range 2 {
		if _, err := enrol(t, events, pod, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	const label = "set the pod's label istio.io/dataplane-mode to none"
	node, err := event.Pods(t.Context(), events, web())
	if err != nil || len(node.Pods) != 1 || len(node.Pods[0].Warnings) != 1 || !strings.Contains(node.Pods[0].Warnings[0], label) {
		t.Errorf("operators are told %+v, %v", node.Pods, err)
	}
	const message = `"msg":"an annotation of a pod has no effect"`
	p.await(message)
	p.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		if strings.Contains(line, message) {
			t.Errorf("it is logged again: %s", line)
		}
	}
}

// TestE32VirtualMachineIsRefused has the plugin add a pod with the interface of a virtual machine:
// the error has the code for it, and the pod is not captured.
func TestE32VirtualMachineIsRefused(t *testing.T) {
	t.Parallel()
	dir, _ := feedPods(t, webPod())
	launch(t, arguments(dir)...)
	awaitSocket(t, filepath.Join(dir, "pluginevent.sock"))
	proxy := startProxy(t, dir)
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{})
	sandboxtest.Run(t, pod.File(), "", "ip", "link", "add", "tap0_kata", "type", "veth", "peer", "name", "peer0")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := addPod(ctx, dir, pod)
	if failure, is := errors.AsType[*plugin.Error](err); !is || failure.Code != 215 || !strings.Contains(failure.Remedy, "without a virtual machine") {
		t.Errorf("the ADD ends with %v, want code 215", err)
	}
	relayed(t, pod, proxy, 0)
}
