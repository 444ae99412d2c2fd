// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// The tests of this file are named after what users of ambient mode complain of:
// docs/ambient-complaints.md lists the complaints (E1 and so on).

// installed is node-ambient as a process on a node with a host's namespace, a feed and a proxy.
type installed struct {
	*process
	dir  string
	host *sandboxtest.Pod
	pod  *dataplanetest.Pod
}

func install(t *testing.T) *installed {
	t.Helper()
	n := &installed{dir: t.TempDir(), host: sandboxtest.NewPod(t), pod: dataplanetest.NewPod(t, dataplanetest.PodOptions{})}
	tree := fakenode.New(t)
	tree.Link(n.host.Namespace.Path(), filepath.Join(tree.Roots.Proc, "1", "ns", "net"))
	s := &source{changes: make(chan ambient.Change, 1), statuses: make(chan ambient.Status, 10000)}
	s.changes <- ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop"}}, Pods: []ambient.Pod{webPod()}, Complete: true}
	serveFeed(t, n.path("feed"), s)
	n.process = begin(t, build(t),
		"-feed="+n.path("feed"), "-events="+n.path("events"), "-proxy="+n.path("proxy"), "-journal="+n.path("records"), "-proc="+tree.Roots.Proc)
	awaitSocket(t, n.path("events"))
	proxy, err := ambienttest.StartProxy(ambienttest.ProxyOptions{Socket: n.path("proxy"), Numbers: ambient.IstioNumbers()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() }) // what it says of the agent's end is nothing
	return n
}

func (n *installed) path(name string) string { return filepath.Join(n.dir, name) }

func (n *installed) mustEnrol() {
	n.t.Helper()
	if decision, err := enrol(n.t, n.path("events"), n.pod, time.Minute); err != nil || !decision.Capture {
		n.t.Fatalf("the plugin gets %+v, %v", decision, err)
	}
}

// descriptors returns what the process has open.
func (n *installed) descriptors() (open []string) {
	n.t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(n.cmd.Process.Pid), "fd")
	files, err := os.ReadDir(dir)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, file := range files {
		if to, err := os.Readlink(filepath.Join(dir, file.Name())); err == nil {
			open = append(open, to)
		}
	}
	return open
}

// TestNothingListensInTheHostsNetwork enrols a pod, for which node-ambient writes rules on the
// host: no socket listens there, and the process itself is in its own network (E27).
func TestNothingListensInTheHostsNetwork(t *testing.T) {
	t.Parallel()
	n := install(t)
	n.mustEnrol()
	if rules := n.host.Run(t, "", "nft", "list", "ruleset"); !strings.Contains(rules, "10.244.1.10") {
		t.Fatalf("the host has no rules for the pod:\n%s", rules)
	}
	if listening := n.host.Run(t, "", "ss", "--no-header", "--all", "--tcp", "--udp", "--raw", "--packet", "--numeric"); listening != "" {
		t.Errorf("sockets in the host's network:\n%s", listening)
	}
	own, err := os.Stat("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	its, err := os.Stat(filepath.Join("/proc", strconv.Itoa(n.cmd.Process.Pid), "ns", "net"))
	if err != nil || !os.SameFile(own, its) {
		t.Errorf("node-ambient is not in the network in which it was started: %v", err)
	}
	n.end()
}

// TestNoDescriptorIsLeftOfPods enrols and withdraws a pod again and again, with failures and forged
// requests in between, and counts all descriptors of the process (E13).
func TestNoDescriptorIsLeftOfPods(t *testing.T) {
	t.Parallel()
	n := install(t)
	round := func() {
		t.Helper()
		n.mustEnrol()
		n.mustRefuse("/proc/self/ns/net")
		n.forge(n.host.Namespace.Path())
		if left, err := event.Withdraw(t.Context(), n.path("events"), web(), func(event.PodState) {}); err != nil || len(left) > 0 {
			t.Fatalf("left %v, %v", left, err)
		}
		if err := event.Readmit(t.Context(), n.path("events")); err != nil {
			t.Fatal(err)
		}
	}
	round() // what is opened once is open now
	before := len(n.descriptors())
	for range 20 {
		round()
	}
	after := n.descriptors()
	for start := time.Now(); len(after) > before && time.Since(start) < 20*time.Second; after = n.descriptors() { // a request may end
	}
	if len(after) > before {
		t.Errorf("%d descriptors are open after 20 rounds more, and %d were before: %q", len(after), before, after)
	}
	n.end()
}

// mustRefuse hands a namespace over that is not the pod's.
func (n *installed) mustRefuse(path string) {
	n.t.Helper()
	file, err := os.Open(path)
	if err != nil {
		n.t.Fatal(err)
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	_, err = event.Enrol(ctx, n.path("events"), event.Pod{
		Namespace: "shop", Name: "web-0", UID: "7f0b", Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.10"), netip.MustParseAddr("127.0.0.1")},
	}, file)
	if own, is := errors.AsType[*event.Error](err); !is || own.Code != event.CodeRefused {
		n.t.Errorf("%s: %v, want that it is refused", path, err)
	}
}

// forge sends what Istio's plugin sends, with the path of a namespace that is not the pod's.
func (n *installed) forge(path string) {
	n.t.Helper()
	conn, err := net.Dial("unix", n.path("events"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer conn.Close()
	body := fmt.Sprintf(`{"Netns":%q,"PodName":"web-0","PodNamespace":"shop","IPs":[{"Address":{"IP":"10.244.1.10","Mask":"////AA=="}}]}`, path)
	request, err := http.NewRequestWithContext(n.t.Context(), http.MethodPost, "http://agent/cmdadd", strings.NewReader(body))
	if err == nil {
		err = request.Write(conn)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusInternalServerError {
		n.t.Errorf("%s: status %d, %v, want that it is refused", path, answer.StatusCode, err)
	}
}

// TestForgedEventsDoNotReachTheHost sends events that name the host's namespace as a pod's, in each
// form: the host has the rules of the host alone, as without them (E12).
func TestForgedEventsDoNotReachTheHost(t *testing.T) {
	t.Parallel()
	n := install(t)
	n.mustEnrol()
	before := dataplanetest.Kernel{}.Dump(t, n.host.Netns)
	for _, path := range []string{n.host.Namespace.Path(), "/proc/self/ns/net"} {
		n.mustRefuse(path)
		n.forge(path)
	}
	if diff := cmp.Diff(before, dataplanetest.Kernel{}.Dump(t, n.host.Netns)); diff != "" {
		t.Errorf("the host was changed (-before +after):\n%s", diff)
	}
	n.end()
}
