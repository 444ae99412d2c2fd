// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestHostIsNeverTakenForAPod leads the agent to the host's namespace on each path: a pod's process
// is there, and forged events hand it over, or this process's own. Nothing is written there (E12).
func TestHostIsNeverTakenForAPod(t *testing.T) {
	t.Parallel()
	tree := fakenode.New(t)
	host := tree.Namespace("host", "10.244.1.10/24")
	tree.Link(host.Path(), filepath.Join(tree.Roots.Proc, "1", "ns", "net"))
	tree.Process(host.Path(), fakenode.Cgroup(fakenode.UID, "cri-containerd"))
	n := newNode(t)
	n.options.Host, n.options.Finder = nil, tree.Finder()
	in, err := interception.OpenNetns(host.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	before := dataplanetest.Kernel{}.Dump(t, in)
	a, _ := n.run()
	n.proxy()
	pod := object(fakenode.UID)
	pod.Name, pod.Addresses = "cart-0", addresses[:1]
	n.feed <- told(pod)
	n.awaitPods(a, "that the pod's process is in the host's namespace", func(pods []Pod) bool {
		if len(pods) == 0 { // the agent has not taken the change yet
			return false
		}
		refusal, is := errors.AsType[*podnetns.RefusalError](pods[0].Err)
		return is && refusal.Obstacle == podnetns.ObstacleHostNetwork
	})
	for _, path := range []string{host.Path(), "/proc/self/ns/net"} {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		forged := podnetns.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, IPs: []netip.Addr{addresses[0], netip.MustParseAddr("127.0.0.1")}}
		if _, err := a.Enrol(t.Context(), forged, file); !errors.Is(err, interception.ErrHostNetns) {
			t.Errorf("an event with %s: %v, want ErrHostNetns", path, err)
		}
	}
	if diff := cmp.Diff(before, dataplanetest.Kernel{}.Dump(t, in)); diff != "" {
		t.Errorf("the host was changed (-before +after):\n%s", diff)
	}
	if len(n.records()) > 0 || n.statusesOf(pod.UID) != nil {
		t.Errorf("records %v, statuses %q, want nothing", n.records(), n.statusesOf(pod.UID))
	}
}

// TestEnrolmentsLeaveNoDescriptor enrols and withdraws pods again and again, by the feed and by
// events, with failures in between: no descriptor of their namespaces is left (E13).
func TestEnrolmentsLeaveNoDescriptor(t *testing.T) {
	t.Parallel()
	n, b := newBreakable(t)
	pod := n.pod("a")
	before := sandboxtest.Descriptors(t, pod.Path())
	a, _ := n.run()
	n.standIn(ambienttest.ProxyOptions{})
	for i := range 20 {
		b.apply.Store(i%2 == 1)
		n.feed <- told(object("a"))
		if b.apply.Load() {
			n.awaitPods(a, "that the plan is not applied", func(pods []Pod) bool { return len(pods) == 1 && errors.Is(pods[0].Err, errBroken) })
			b.apply.Store(false)
		}
		n.awaitSelection(a, "a")
		for range 3 { // the namespace that the agent has
			if _, err := n.hand(t.Context(), a, "a", pod); err != nil {
				t.Fatal(err)
			}
		}
		file, err := os.Open(pod.Path())
		if err != nil {
			t.Fatal(err)
		}
		other := podnetns.Pod{Namespace: "shop", Name: "pod-a", UID: "a", IPs: []netip.Addr{netip.MustParseAddr("10.9.9.9")}}
		if _, err := a.Enrol(t.Context(), other, file); err == nil {
			t.Error("a namespace without the pod's address is accepted")
		}
		n.feed <- told(optedOut("a"))
		n.awaitRest(a)
		if decision, err := n.hand(t.Context(), a, "a", pod); err != nil || decision.Capture {
			t.Errorf("a pod outside the mesh: %+v, %v", decision, err)
		}
	}
	eventually(t, func() error {
		if open := sandboxtest.Descriptors(t, pod.Path()); open != before {
			return fmt.Errorf("%d descriptors of the namespace are open, and %d were before", open, before)
		}
		return nil
	})
}

// patient puts a pod on the node whose probes wait for the second SYN: while iptables loads a plan,
// a guard drops new connections, and TCP tries again after a second.
func (n *node) patient(uid string) *dataplanetest.Pod {
	n.t.Helper()
	pod := dataplanetest.NewPod(n.t, dataplanetest.PodOptions{Ports: []uint16{8080}, DropAfter: 10 * time.Second, RelayedWithin: relayedWithin})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paths[uid] = pod.Path()
	return pod
}

// TestNoConnectionEscapesWhileRulesAreReplaced replaces the rules of a pod a hundred times by those
// for captured queries, and back, as an upgrade may. Meanwhile connections are opened: each is
// captured (E15).
func TestNoConnectionEscapesWhileRulesAreReplaced(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.dataplane, n.options.Dataplane, n.options.Sets = dataplane, dataplane, dataplane
			pod := n.patient("a")
			a, end := n.run()
			n.proxy()
			n.feed <- told(object("a"))
			n.awaitSelection(a, "a")
			living := n.open(pod)
			end() // the proxy goes on
			inside, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer inside.Close()
			facts, err := netfacts.Read(inside)
			if err != nil {
				t.Fatal(err)
			}
			made := n.call(map[string]*dataplanetest.Pod{"a": pod}, 1)
			for i := range 100 {
				plan, err := ambient.PodPlan(ambient.DefaultOverrides(i%2 == 0), n.options.Numbers, facts, owner)
				if err == nil {
					err = dataplane.Apply(t.Context(), inside, plan)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if made() == 0 {
				t.Error("no connection was made")
			}
			n.exchange(living)
		})
	}
}

// counted is a dataplane that counts how often a plan is applied, except on the host.
type counted struct {
	hostDataplane

	host  interception.NetnsID
	count atomic.Int32
}

func (c *counted) Apply(ctx context.Context, in *interception.Netns, plan *interception.Plan) error {
	if in.ID() != c.host {
		c.count.Add(1)
	}
	return c.hostDataplane.Apply(ctx, in, plan)
}

// TestRepeatedAddsChangeNothing hands a pod over a hundred times, to agents that follow each other,
// while connections are opened: each ADD succeeds, each connection is captured, and the rules are
// written once. Then the ADD comes to a half of the rules, as an ADD leaves that was interrupted
// (E28).
func TestRepeatedAddsChangeNothing(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.dataplane, n.options.Sets = dataplane, dataplane
			pod := n.patient("a")
			writes := &counted{hostDataplane: dataplane, host: n.options.Host.ID()}
			n.options.Dataplane = writes
			n.proxy()
			var made func() int
			for round := range 10 {
				a, end := n.run()
				n.feed <- told(object("a"))
				for range 10 {
					if decision, err := n.hand(t.Context(), a, "a", pod); err != nil || !decision.Capture {
						t.Fatalf("%+v, %v", decision, err)
					}
				}
				if round == 0 {
					made = n.call(map[string]*dataplanetest.Pod{"a": pod}, 1)
				}
				end()
			}
			if count := made(); count == 0 || writes.count.Load() != 1 {
				t.Errorf("the rules were written %d times, want once, while %d connections were made", writes.count.Load(), count)
			}
			n.halve(pod, name)
			if differs(nil, n.state(pod)) && !differs(n.recorded("a").Plan, n.state(pod)) {
				t.Fatal("the rules are still whole")
			}
			a, _ := n.run()
			n.feed <- told(object("a"))
			if _, err := n.hand(t.Context(), a, "a", pod); err != nil {
				t.Fatal(err)
			}
			if drift := interception.Diff(n.recorded("a").Plan, n.state(pod)); drift != nil {
				t.Errorf("the rules are not those of the record: %v", drift)
			}
			n.connectOut(pod, 1)
		})
	}
}

// halve takes the jumps of a pod's rules away, and leaves its chains.
func (n *node) halve(pod *dataplanetest.Pod, dataplane string) {
	n.t.Helper()
	if flavour, is := strings.CutPrefix(dataplane, "iptables-"); is {
		for _, chain := range []string{"PREROUTING", "OUTPUT"} {
			sandboxtest.Run(n.t, pod.File(), "", "iptables-"+flavour, "-t", "nat", "-F", chain)
		}
		return
	}
	sandboxtest.Run(n.t, pod.File(), "", "nft", "flush", "table", "inet", string(owner))
}
