// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestPodOfDeletedJobLeavesItsAddress has a job end and a new pod get its address, and only then
// hears of the job's end: the new pod's address stays in the host's sets all the while (E17).
func TestPodOfDeletedJobLeavesItsAddress(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]ambient.Change{
		"finished":                  {Pods: []ambient.Pod{finished("a", addresses)}},
		"finished, without address": {Pods: []ambient.Pod{finished("a", nil)}},
		"deleted":                   {Gone: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, b := newBreakable(t)
			job, pod := n.pod("a"), n.pod("b")
			a, _ := n.run()
			n.proxy()
			n.feed <- told(object("a"))
			n.awaitSelection(a, "a")
			latter := object("b")
			latter.Addresses = addresses
			n.feed <- told(latter)
			n.awaitSelection(a, "a b")
			edits := b.updates.Load()
			n.feed <- end
			n.awaitSelection(a, "b")
			if want := []string{"10.244.1.10 b", "fd00:10:244:1::a b"}; !slices.Equal(n.members(), want) || b.updates.Load() != edits {
				t.Errorf("members %v after %d more edits, want %v and no edit", n.members(), b.updates.Load()-edits, want)
			}
			if n.served(job) || !slices.Equal(n.records(), attachments("b")) {
				t.Errorf("the job is served: %t; records of %v", n.served(job), n.records())
			}
			n.connect(pod, 1)
		})
	}
}

// finished is the object of a job that has ended.
func finished(uid string, addresses []netip.Addr) ambient.Pod {
	job := object(uid)
	job.Phase, job.Addresses = "Succeeded", addresses
	return job
}

// TestEachFamilyIsProbedAlone has pods of IPv4, of IPv6 and of both on a node, on each backend:
// each is enrolled, and probes from its own node reach it (E18).
func TestEachFamilyIsProbedAlone(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newHostNode(t, dataplane)
			pods := []ambient.Pod{n.start(interception.IPv4), n.start(interception.IPv6), n.start(families()...)}
			n.proxy()
			a, _ := n.run()
			n.feed <- told(pods...)
			n.awaitSelection(a, uids(pods...))
			n.mustProbe(pods...)
			if got := n.members(); len(got) != 4 {
				t.Errorf("members %v, want four addresses", got)
			}
		})
	}
}

// TestAddressOfADisabledFamilyIsSkipped has a pod with addresses of both families on a host without
// IPv6: the pod is enrolled (E18).
func TestAddressOfADisabledFamilyIsSkipped(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.dataplane, n.options.Dataplane, n.options.Sets = dataplane, dataplane, dataplane
			host := sandboxtest.NewPod(t)
			n.options.Host = host.Netns
			withoutIPv6(t, host.Namespace.Do, "all", "default", "lo")
			pod := n.pod("a")
			a, _ := n.run()
			n.proxy()
			n.feed <- told(object("a"))
			n.awaitSelection(a, "a")
			if got := n.members(); !slices.Equal(got, []string{"10.244.1.10 a"}) {
				t.Errorf("members %v, want the address of IPv4", got)
			}
			n.connect(pod, 1)
			n.feed <- told(optedOut("a"))
			n.awaitRest(a)
		})
	}
}

// TestPodWithoutIPv6OnLoopbackIsEnrolled has a pod whose lo has no IPv6: it is served by IPv4
// (E18). The kernel cannot redirect its connections by IPv6, and drops them.
func TestPodWithoutIPv6OnLoopbackIsEnrolled(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.dataplane, n.options.Dataplane, n.options.Sets = dataplane, dataplane, dataplane
			pod := n.pod("a")
			withoutIPv6(t, pod.Do, "lo")
			a, _ := n.run()
			n.proxy()
			n.feed <- told(object("a"))
			n.awaitSelection(a, "a")
			n.send(pod, 1,
				dataplanetest.Probe{From: dataplanetest.Elsewhere, Src: netip.MustParseAddr("192.0.2.9"), Dst: netip.MustParseAddrPort("10.244.1.10:8080")},
				dataplanetest.Probe{Dst: netip.MustParseAddrPort("198.51.100.7:443")})
		})
	}
}

// withoutIPv6 disables IPv6 of interfaces in a namespace.
func withoutIPv6(t *testing.T, in func(func() error) error, interfaces ...string) {
	t.Helper()
	for _, name := range interfaces {
		if err := in(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0) }); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForeignUserOfOurNumbersIsNamed has another program use the mesh's routing table or priority
// in a pod: the pod is left as it is, and the error names the rule. The pod is enrolled as soon as
// the other program's rule is gone (E20).
func TestForeignUserOfOurNumbersIsNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ foreign, at string }{
		"the table":    {"route add local 10.9.0.0/16 dev lo table 100", "table 100"},
		"the priority": {"rule add priority 32764 fwmark 0x111/0xfff table 7", "32764"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			pod := n.pod("a")
			arguments := append([]string{"ip", "-4"}, strings.Fields(test.foreign)...)
			sandboxtest.Run(t, pod.File(), "", arguments...)
			a, _ := n.run()
			n.proxy()
			n.feed <- told(object("a"))
			n.awaitPods(a, "that the rule of another program is in the way", func(pods []Pod) bool {
				return len(pods) == 1 && pods[0].Step == ambient.StepApply && errors.Is(pods[0].Err, unix.EEXIST)
			})
			refused, is := errors.AsType[*interception.ApplyError](a.Pods()[0].Err)
			if !is || !strings.Contains(refused.Error(), test.at) {
				t.Errorf("the error is %v, want one that names %s", a.Pods()[0].Err, test.at)
			}
			n.connect(pod, 0)
			if n.statusesOf("a") != nil {
				t.Errorf("statuses %q, want none", n.statusesOf("a"))
			}
			sandboxtest.Run(t, pod.File(), "", strings.Fields(strings.Replace("ip -4 "+test.foreign, " add ", " del ", 1))...)
			n.awaitSelection(a, "a")
			n.connect(pod, 1)
		})
	}
}

// TestMachineInAPodIsCaptured has a virtual machine, or containers of their own, at a link of the
// pod: its traffic goes to the proxy as the pod's does, or direct, as the pod says (E20).
func TestMachineInAPodIsCaptured(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations map[string]string
		relayed     int
	}{
		"rerouted": {map[string]string{"istio.io/reroute-virtual-interfaces": "vm0"}, 1},
		"excluded": {map[string]string{"traffic.istio.io/excludeInterfaces": "vm0"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{Ports: []uint16{8080}, MachineLink: "vm0"})
			n.paths["a"] = pod.Path()
			a, _ := n.run()
			n.proxy()
			annotated := object("a")
			annotated.Annotations = test.annotations
			n.feed <- told(annotated)
			n.awaitSelection(a, "a")
			n.send(pod, test.relayed,
				dataplanetest.Probe{From: dataplanetest.InMachine, Dst: netip.MustParseAddrPort("198.51.100.7:443")},
				dataplanetest.Probe{From: dataplanetest.InMachine, Dst: netip.MustParseAddrPort("[2001:db8:7::7]:443")})
			n.connect(pod, 1)
		})
	}
}
