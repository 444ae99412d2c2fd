// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestE12StatusListsAllOnTheHost compares what "install-cni ambient status --host" lists with what
// node-ambient has added to the host's namespace. The command lists as many links, addresses,
// policy rules and routes as the system's tools show beyond those before. When all that the listed
// owner has is removed, rules included, the host is as it was.
func TestE12StatusListsAllOnTheHost(t *testing.T) {
	t.Parallel()
	agent, installer := build(t), filepath.Join(t.TempDir(), "install-cni")
	if output, err := exec.Command("go", "build", "-o", installer, "../install-cni").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	for _, dataplane := range []string{"nftables", "iptables"} {
		t.Run(dataplane, func(t *testing.T) {
			t.Parallel()
			c := newCaptor(t, `,"dataplane":"`+dataplane+`"`)
			before, had := dataplanetest.Kernel{}.Dump(t, c.node.Host.Netns), c.objectLines()
			p := begin(t, agent, c.args...)
			awaitSocket(t, c.path("pluginevent.sock"))
			if err := c.enrol(); err != nil {
				t.Fatal(err)
			}
			p.end()
			listed := c.statusOfHost(installer)
			if len(listed.Holds) != 1 || len(listed.Deviations) > 0 {
				t.Fatalf("%d owners and the deviations %s are listed, want one owner alone", len(listed.Holds), listed.Deviations)
			}
			for kind, lines := range c.objectLines() {
				added := slices.DeleteFunc(lines, func(line string) bool { return slices.Contains(had[kind], line) })
				if got := listed.Holds[0].count(kind); got != len(added) || got == 0 {
					t.Errorf("%d objects of the kind %s are listed, and there are %q", got, kind, added)
				}
			}
			by, _ := c.written()
			if err := by.Dataplane.Remove(t.Context(), c.node.Host.Netns, listed.Holds[0].Owner); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, dataplanetest.Kernel{}.Dump(t, c.node.Host.Netns)); diff != "" {
				t.Errorf("without what is listed (-before the program +now):\n%s", diff)
			}
		})
	}
}

// listing is what "install-cni ambient status --host -o json" prints.
type listing struct {
	Holds      []holding
	Deviations []json.RawMessage
}

// holding is what an owner has: objects, each under the name of its kind.
type holding struct {
	Owner   interception.Owner
	Objects []map[string]json.RawMessage
}

func (h holding) count(kind string) (n int) {
	for _, object := range h.Objects {
		if _, is := object[kind]; is {
			n++
		}
	}
	return n
}

func (c *captor) statusOfHost(installer string) (listed listing) {
	c.t.Helper()
	out, err := exec.Command(installer, "ambient", "status", "--host", "-o", "json", "--mounted-proc-dir="+c.node.Roots().Proc).Output()
	if err == nil {
		err = json.Unmarshal(out, &listed)
	}
	if err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	return listed
}

// objectLines returns a line of the system's tools for each object of some kinds in the host's
// namespace. It leaves out the routes that the kernel itself adds.
func (c *captor) objectLines() map[string][]string {
	c.t.Helper()
	all := map[string][]string{}
	for kind, command := range map[string]string{
		"link":       "ip -br link | sed 's/[@ ].*//'",
		"address":    "ip -o address show scope global | sed 's/^[0-9]*: //'",
		"policyRule": "ip rule; ip -6 rule",
		"route":      "{ ip -4 route show table all; ip -6 route show table all; } | { grep -v 'proto kernel' || true; }",
	} {
		all[kind] = slices.Collect(strings.Lines(sandboxtest.Run(c.t, c.node.Host.Netns.File(), "", "sh", "-ec", command)))
	}
	return all
}

// secondUID is the UID of another pod of the proxy.
const secondUID = "1c6b2f1e-9d3c-4f7a-8a51-000000000003"

// descriptorRounds is how often TestOnNodeLeavesNoDescriptor does all that opens descriptors.
const descriptorRounds = 10

// TestOnNodeLeavesNoDescriptor enrols a pod, has two proxies take each other's place, withdraws the
// pod and readmits it, again and again, and counts the descriptors of the process (E13).
func TestOnNodeLeavesNoDescriptor(t *testing.T) {
	t.Parallel()
	c := newCaptor(t, "")
	second := c.node.NewPod(secondUID, interception.IPv4, interception.IPv6)
	proxies := []*nodes.Proxy{c.proxy, second.StartProxy(t)}
	n := &installed{process: begin(t, build(t), c.args...), dir: c.dir, host: nil}
	awaitSocket(t, c.path("pluginevent.sock"))
	former := c.objects()[1]
	created := 1
	round := func() {
		t.Helper()
		if err := c.enrol(); err != nil {
			t.Fatal(err)
		}
		for i := range proxies {
			created++
			next := former
			next.Created, next.UID, next.Name, next.Addresses = time.Unix(int64(created), 0), secondUID, "ztunnel-y", second.Addresses
			if i > 0 {
				next.UID, next.Name, next.Addresses = proxyUID, "ztunnel-x", c.own.Addresses
			}
			c.source.changes <- ambient.Change{Pods: []ambient.Pod{next}}
			c.awaitTaker(proxies[1-i])
			c.source.changes <- ambient.Change{Gone: []string{former.UID}}
			former = next
		}
		if left, err := event.Withdraw(t.Context(), c.path("pluginevent.sock"), event.Selection{}, func(event.PodState) {}); err != nil || len(left) > 0 {
			t.Fatalf("left %v, %v", left, err)
		}
		if err := event.Readmit(t.Context(), c.path("pluginevent.sock")); err != nil {
			t.Fatal(err)
		}
		for late := time.Now().Add(time.Minute); ; { // for the proxy's namespace to be open again
			if _, err := os.Lstat(c.path("records.node.json")); err == nil {
				break
			} else if time.Now().After(late) {
				t.Fatal(err)
			}
		}
	}
	round() // what is opened once is open now
	before := len(n.descriptors())
	for range descriptorRounds {
		round()
	}
	after := n.descriptors()
	for start := time.Now(); len(after) > before && time.Since(start) < 20*time.Second; after = n.descriptors() { // a request may end
	}
	if len(after) > before {
		t.Errorf("%d descriptors are open after %d rounds more, and %d were before: %q", len(after), descriptorRounds, before, after)
	}
	n.end()
}

// awaitTaker waits until a proxy takes the pod's connections.
func (c *captor) awaitTaker(proxy *nodes.Proxy) {
	c.t.Helper()
	deadline := time.Now().Add(time.Minute)
	pace := time.NewTicker(50 * time.Millisecond)
	defer pace.Stop()
	for proxy.Takings(); ; {
		_, err := c.web.Visit(c.t.Context(), "tcp", netip.AddrPortFrom(c.remote.Addresses[0], 8080))
		if len(proxy.Takings()) > 0 {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the proxy takes no connections: %v", err)
		}
		<-pace.C // the pod has ports for 500 connections a minute
	}
}

// TestOnNodeReportsExclusions has a pod exclude a port, and a proxy without IPv6: operators learn
// of both, and the log of the annotation (E26).
func TestOnNodeReportsExclusions(t *testing.T) {
	t.Parallel()
	c := newCaptor(t, "")
	pods := c.objects()
	pods[0].Annotations = map[string]string{"traffic.istio.io/excludeOutboundPorts": "8080"}
	pods[1].Addresses = pods[1].Addresses[:1]
	c.source.changes <- ambient.Change{Pods: pods}
	p := begin(t, build(t), c.args...)
	awaitSocket(t, c.path("pluginevent.sock"))
	if err := c.enrol(); err != nil {
		t.Fatal(err)
	}
	c.capturedOver4()
	asked, err := event.Pods(t.Context(), c.path("pluginevent.sock"), web())
	if err != nil || len(asked.Pods) != 1 {
		t.Fatalf("%+v, %v", asked, err)
	}
	const reason = `traffic.istio.io/excludeOutboundPorts="8080": it has no effect where the node's namespace captures the pods`
	got := asked.Pods[0]
	if len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0], reason) {
		t.Errorf("the warnings are %q, want one with %s", got.Warnings, reason)
	}
	if got.Status != "enabled" || got.Step != "" || !strings.Contains(got.Error, fmt.Sprintf("the pod has the address %s, and the proxy mesh/ztunnel-x, with", c.web.Addresses[1])) {
		t.Errorf("status %q, step %q, error %q", got.Status, got.Step, got.Error)
	}
	p.await(`"msg":"an annotation of a pod has no effect"`)
	p.end()
}

// capturedOver4 tests that the proxy takes the pod's connections over IPv4.
func (c *captor) capturedOver4() {
	c.t.Helper()
	c.proxy.Takings() // forget
	if _, err := c.web.Visit(c.t.Context(), "tcp", netip.AddrPortFrom(c.remote.Addresses[0], 8080)); err != nil {
		c.t.Error(err)
	}
	if len(c.proxy.Takings()) == 0 {
		c.t.Error("the proxy has taken no connection")
	}
}
