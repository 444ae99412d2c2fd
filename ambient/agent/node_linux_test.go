// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/journal"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

const owner interception.Owner = "test-ambient"

// node is a node with the agent's surroundings: the API server's feed, the pods' namespaces, the
// host's namespace and the proxy's socket.
type node struct {
	t         testing.TB
	options   Options
	dataplane interception.Dataplane
	feed      chan ambient.Change
	calls     atomic.Uint32 // how many connections call has made
	command   string        // the proxy that takes the stand-in's place, if any
	// familyByFamily reports that the dataplane writes the rules of one family after the other's.
	familyByFamily bool

	mu        sync.Mutex
	changed   chan struct{} // closed when the agent tells something
	statuses  map[string][]ambient.Status
	paths     map[string]string // of the namespaces that FindAll finds
	witnesses map[*dataplanetest.Pod]*ambienttest.Witness
}

// Next makes a node the feed of its agent.
func (n *node) Next(ctx context.Context) (ambient.Change, error) {
	select {
	case change := <-n.feed:
		return change, nil
	case <-ctx.Done():
		return ambient.Change{}, ctx.Err()
	}
}

func (n *node) Annotate(pod interception.Pod, status ambient.Status) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.statuses[pod.UID] = append(n.statuses[pod.UID], status)
	n.news()
}

// observe is told by the agent.
func (n *node) observe(Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.news()
}

func (n *node) news() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// FindAll finds the namespaces that the test has put on the node.
func (n *node) FindAll(_ context.Context, pods []podnetns.Pod) []podnetns.Finding {
	all := make([]podnetns.Finding, len(pods))
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, pod := range pods {
		path := n.paths[pod.UID]
		if path == "" {
			all[i].Err = &podnetns.RefusalError{Pod: pod, Obstacle: podnetns.ObstacleNotFound, Detail: "nothing leads to the pod"}
			continue
		}
		namespace, err := interception.OpenNetns(path, interception.NetnsOptions{})
		if all[i].Err = err; err == nil {
			all[i].Found = &podnetns.Found{Netns: namespace}
		}
	}
	return all
}

func (n *node) Verify(pod podnetns.Pod, file *os.File) (*interception.Netns, error) {
	finder, err := podnetns.NewFinder(podnetns.Roots{})
	if err != nil {
		return nil, err
	}
	return finder.Verify(pod, file)
}

func newNode(t testing.TB) *node {
	t.Helper()
	dataplane, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{
		t: t, dataplane: dataplane, feed: make(chan ambient.Change), changed: make(chan struct{}), statuses: map[string][]ambient.Status{},
		paths: map[string]string{}, witnesses: map[*dataplanetest.Pod]*ambienttest.Witness{},
		command: os.Getenv(ambienttest.Variable), //nolint:forbidigo // a run of tests has no caller that could pass it
	}
	n.options = Options{
		Socket: filepath.Join(t.TempDir(), "z"), Dataplane: dataplane, Finder: n, Feed: n, Annotator: n,
		Journal: journal.Journal{Directory: filepath.Join(t.TempDir(), "journal")}, Owner: owner, Policy: ambient.IstioPolicy(),
		Vocabulary: ambient.Istio(), Defaults: ambient.DefaultOverrides(false), Numbers: ambient.IstioNumbers(),
		Host: sandboxtest.NewPod(t).Netns, Sets: dataplane, Proxy: zds.Options{Again: 10 * time.Millisecond},
		DrainTimeout: time.Hour, Round: time.Hour, Observe: n.observe,
		Count: func(Count) { n.observe(Pod{}) }, // the host's rules and sets are not reported else
	}
	return n
}

// run runs an agent until the test ends, or end is called.
func (n *node) run() (a *Agent, end func()) {
	n.t.Helper()
	a, err := New(n.t.Context(), n.options)
	if err != nil {
		n.t.Fatal(err)
	}
	return a, n.begin(a)
}

// begin runs an agent until the test ends, or end is called.
func (n *node) begin(a *Agent) (end func()) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			n.t.Errorf("Run: %v", err)
		}
	})
	n.t.Cleanup(end)
	return end
}

// relayedWithin is how long the stand-in for the proxy may take: as a process of the test it waits
// for its turn on a busy machine.
const relayedWithin = 20 * time.Second

// pod puts a pod with an application on the node.
func (n *node) pod(uid string) *dataplanetest.Pod {
	n.t.Helper()
	pod := dataplanetest.NewPod(n.t, dataplanetest.PodOptions{Ports: []uint16{8080}, RelayedWithin: relayedWithin})
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paths[uid] = pod.Path()
	return pod
}

var addresses = []netip.Addr{netip.MustParseAddr("10.244.1.10"), netip.MustParseAddr("fd00:10:244:1::a")}

// object is the API server's object of a pod that is enrolled. Only pod a has the addresses of the
// namespaces, because no two pods have the same.
func object(uid string) ambient.Pod {
	own := addresses
	if uid != "a" {
		own = []netip.Addr{netip.AddrFrom4([4]byte{10, 244, 2, uid[len(uid)-1]})}
	}
	return ambient.Pod{Addresses: own, Pod: interception.Pod{
		Namespace: "shop", Name: "pod-" + uid, UID: uid, ServiceAccount: "account", Labels: map[string]string{"istio.io/dataplane-mode": "ambient"},
	}}
}

// optedOut is the same pod without the label.
func optedOut(uid string) ambient.Pod {
	pod := object(uid)
	pod.Labels = nil
	return pod
}

func told(pods ...ambient.Pod) ambient.Change {
	return ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop"}}, Pods: pods, Complete: true}
}

// awaitStatus waits until the last status of a pod is this one.
func (n *node) awaitStatus(a *Agent, uid string, want ambient.Status) {
	n.t.Helper()
	last := func() (all []ambient.Status) {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.statuses[uid]
	}
	n.await(func() bool { all := last(); return len(all) > 0 && all[len(all)-1] == want }, func() string {
		return fmt.Sprintf("pod %s has the statuses %q, want %q last; the agent says %s", uid, last(), want, describe(a))
	})
}

// awaitSeen waits until the agent says that a pod has this status, whatever its annotation is.
func (n *node) awaitSeen(a *Agent, uid string, want ambient.Status) {
	n.t.Helper()
	n.awaitPods(a, fmt.Sprintf("that pod %s is %q", uid, want), func(pods []Pod) bool {
		return slices.ContainsFunc(pods, func(p Pod) bool { return p.UID == uid && p.Seen.Status == want })
	})
}

func describe(a *Agent) string { return fmt.Sprintf("%+v", a.Pods()) }

// awaitPods waits until a condition holds of what the agent says.
func (n *node) awaitPods(a *Agent, want string, holds func([]Pod) bool) {
	n.t.Helper()
	n.await(func() bool { return holds(a.Pods()) }, func() string { return fmt.Sprintf("the agent says %s, want %s", describe(a), want) })
}

// await waits until a condition holds, and tests it whenever the agent tells something.
func (n *node) await(holds func() bool, describe func() string) {
	n.t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		n.mu.Lock()
		changed := n.changed
		n.mu.Unlock()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			n.t.Fatal(describe())
		}
	}
}

// awaitRest waits until the agent deals with no pod any more.
func (n *node) awaitRest(a *Agent) {
	n.t.Helper()
	n.awaitPods(a, "no pod", func(pods []Pod) bool { return len(pods) == 0 })
}

// captured reports whether a pod has rules.
func (n *node) captured(pod *dataplanetest.Pod) bool {
	n.t.Helper()
	return differs(nil, n.state(pod))
}

// state returns what the owner has in a pod's namespace.
func (n *node) state(pod *dataplanetest.Pod) interception.State {
	n.t.Helper()
	namespace, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	defer namespace.Close()
	state, err := n.dataplane.Observe(n.t.Context(), namespace, owner)
	if err != nil {
		n.t.Fatal(err)
	}
	return state
}

// members returns which addresses the host's sets have.
func (n *node) members() (all []string) {
	n.t.Helper()
	state, err := n.dataplane.Observe(n.t.Context(), n.options.Host, owner)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, set := range state.Owners {
		for address, uid := range set {
			all = append(all, fmt.Sprintf("%s %s", address, uid))
		}
	}
	slices.Sort(all)
	return all
}

func (n *node) records() []journal.Attachment {
	n.t.Helper()
	all, err := n.options.Journal.Attachments()
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

// connect opens a connection in each direction and family, and tests how many times proxies relay
// each.
func (n *node) connect(pod *dataplanetest.Pod, relayed int) {
	n.t.Helper()
	n.send(pod, relayed,
		dataplanetest.Probe{From: dataplanetest.Elsewhere, Src: netip.MustParseAddr("192.0.2.9"), Dst: netip.MustParseAddrPort("10.244.1.10:8080")},
		dataplanetest.Probe{From: dataplanetest.Elsewhere, Src: netip.MustParseAddr("2001:db8::9"), Dst: netip.MustParseAddrPort("[fd00:10:244:1::a]:8080")})
	n.connectOut(pod, relayed)
}

// connectOut makes connections from the pod alone. Of thousands of connections to the pod a few
// would fail: the proxy keeps a client's address and has a port of its own, and those two may be of
// an earlier connection that the kernel still tracks.
func (n *node) connectOut(pod *dataplanetest.Pod, relayed int) {
	n.t.Helper()
	n.send(pod, relayed,
		dataplanetest.Probe{Dst: netip.MustParseAddrPort("198.51.100.7:443")}, dataplanetest.Probe{Dst: netip.MustParseAddrPort("[2001:db8:7::7]:443")})
}

func (n *node) send(pod *dataplanetest.Pod, relayed int, probes ...dataplanetest.Probe) {
	n.t.Helper()
	for _, probe := range probes {
		before := n.relayed(pod)
		seen, err := pod.Send(n.t.Context(), probe)
		if err != nil || seen.Verdict != dataplanetest.Accepted || !seen.Answered {
			n.t.Errorf("%s: %s, %v, want that it is accepted and answered", probe, seen, err)
		}
		if got := n.relayed(pod) - before; got != relayed {
			n.t.Errorf("%s: proxies have relayed %d connections, want %d", probe, got, relayed)
		}
	}
}

// open opens a connection from the pod, which is closed when the test ends.
func (n *node) open(pod *dataplanetest.Pod) *dataplanetest.Connection {
	n.t.Helper()
	connection, err := pod.Connect(n.t.Context(), dataplanetest.Probe{Dst: netip.MustParseAddrPort("198.51.100.7:443")})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = connection.Close() }) // the test may have closed it
	return connection
}

// exchange tests that a connection lives, in both directions.
func (n *node) exchange(connection *dataplanetest.Connection) {
	n.t.Helper()
	for _, side := range []dataplanetest.Side{dataplanetest.Opener, dataplanetest.Taker} {
		if verdict, err := connection.Say(n.t.Context(), side); err != nil || verdict != dataplanetest.Accepted {
			n.t.Errorf("what the side %v says: %v, %v", side, verdict, err)
		}
	}
}

// flush removes the owner's rules, as another program may.
func (n *node) flush(in *interception.Netns) {
	n.t.Helper()
	if err := n.dataplane.Remove(n.t.Context(), in, owner); err != nil {
		n.t.Fatal(err)
	}
}

// onTmpfs mounts a tmpfs with more options (tmpfs(5)), or none, and returns its directory.
func onTmpfs(t testing.TB, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, strings.Trim("mode=0700,"+options, ",")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
