// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/agent/nodemode"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/interception/podnetns"
)

const owner interception.Owner = "test-ambient"

// backend is a dataplane with live sets.
type backend interface {
	interception.Dataplane
	agent.SetEditor
}

// backends returns the dataplanes by name.
func backends(t testing.TB) map[string]backend {
	t.Helper()
	all := map[string]backend{}
	nft, err := nftables.New(nftables.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all["nftables"] = nft
	for _, flavour := range []iptables.Flavour{iptables.NFT, iptables.Legacy} {
		ipt, err := iptables.New(iptables.Options{Flavour: flavour})
		if err != nil {
			t.Fatal(err)
		}
		all["iptables-"+string(flavour)] = ipt
	}
	return all
}

// node is a node made of namespaces, with the agent's surroundings.
type node struct {
	t       testing.TB
	made    *nodes.Node
	remote  *nodes.Place // a pod on another node
	second  *nodes.Place // another one there
	options nodemode.Options
	feed    chan ambient.Change
	places  map[string]*nodes.Place // the node's pods by UID

	mu       sync.Mutex
	changed  chan struct{} // closed when the agent tells something
	statuses map[string][]ambient.Status
	host     error // what ObserveHost was told last
}

func newNode(t testing.TB, dataplane backend) *node {
	t.Helper()
	both := nodes.New(t)
	n := &node{
		t: t, made: both[0], feed: make(chan ambient.Change), places: map[string]*nodes.Place{}, changed: make(chan struct{}),
		statuses: map[string][]ambient.Status{},
	}
	n.remote, n.second = both[1].NewPod("remote", families...), both[1].NewPod("second", families...)
	serve(t, n.remote)
	serve(t, n.second)
	n.options = n.settings(dataplane, n.made.Roots(), n.made.Host.Netns)
	return n
}

// settings returns the options of an agent.
func (n *node) settings(dataplane backend, roots podnetns.Roots, host *interception.Netns) nodemode.Options {
	n.t.Helper()
	finder, err := podnetns.NewFinder(roots)
	if err != nil {
		n.t.Fatal(err)
	}
	policy := ambient.IstioPolicy()
	policy.ProxyNamespace, policy.ProxyLabels = "mesh", map[string]string{"app": "ztunnel"}
	return nodemode.Options{
		Dataplane: dataplane, Sets: dataplane, Finder: finder, Feed: n, Annotator: n, State: filepath.Join(n.t.TempDir(), "node.json"), Owner: owner,
		Policy: policy, Vocabulary: ambient.Istio(), Numbers: ambient.IstioNodeNumbers(), Host: host,
		Round: time.Hour, ListenerRound: 50 * time.Millisecond, Observe: func(agent.Pod) { n.news(nil) },
		ObserveHost: func(err error) { n.news(func() { n.host = err }) },
	}
}

var families = []interception.Family{interception.IPv4, interception.IPv6}

// serve runs an application in a pod to the end of the test.
func serve(t testing.TB, place *nodes.Place) {
	t.Helper()
	stop, err := place.Serve(8080)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
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

// Annotate makes a node the annotator of its agent.
func (n *node) Annotate(pod interception.Pod, status ambient.Status) {
	n.news(func() { n.statuses[pod.UID] = append(n.statuses[pod.UID], status) })
}

func (n *node) news(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if do != nil {
		do()
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// place puts a pod with an application on the node.
func (n *node) place(families ...interception.Family) (uid string) {
	n.t.Helper()
	uid = fmt.Sprintf("1c6b2f1e-9d3c-4f7a-8a51-%012d", len(n.places))
	place := n.made.NewPod(uid, families...)
	serve(n.t, place)
	n.places[uid] = place
	return uid
}

// object returns the API server's object of a pod that is in the mesh.
func (n *node) object(uid string) ambient.Pod {
	return ambient.Pod{Addresses: n.places[uid].Addresses, Phase: "Running", Pod: interception.Pod{
		Namespace: "shop", Name: "pod-" + uid[len(uid)-2:], UID: uid, Labels: map[string]string{"istio.io/dataplane-mode": "ambient"},
	}}
}

// pod puts a pod of the mesh on the node.
func (n *node) pod() ambient.Pod {
	n.t.Helper()
	return n.object(n.place(families...))
}

// out returns a pod that is not in the mesh any more.
func out(pod ambient.Pod) ambient.Pod {
	pod.Labels = nil
	return pod
}

// proxy puts a proxy's pod on the node, which listens and is ready.
func (n *node) proxy() (ambient.Pod, *nodes.Proxy) {
	n.t.Helper()
	pod := n.silentProxy(families...)
	return pod, n.places[pod.UID].StartProxy(n.t)
}

// silentProxy puts a proxy's pod on the node that does not listen.
func (n *node) silentProxy(families ...interception.Family) ambient.Pod {
	n.t.Helper()
	pod := n.object(n.place(families...))
	pod.Namespace, pod.Labels = "mesh", map[string]string{"app": "ztunnel"}
	pod.Created, pod.Ready = time.Unix(int64(len(n.places)), 0), true
	return pod
}

// told is a feed that tells of these pods, and that they are all.
func told(pods ...ambient.Pod) ambient.Change {
	return ambient.Change{Namespaces: []ambient.Namespace{{Name: "shop"}, {Name: "mesh"}}, Pods: pods, Complete: true}
}

// run runs an agent until the test ends, or end is called.
func (n *node) run() (a *nodemode.Agent, end func()) {
	n.t.Helper()
	a, err := nodemode.New(n.options)
	if err != nil {
		n.t.Fatal(err)
	}
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
	return a, end
}

// await waits until a condition holds, and tests it whenever the agent tells something.
func (n *node) await(want string, holds func() bool) {
	n.t.Helper()
	timeout := time.After(60 * time.Second)
	for {
		n.mu.Lock()
		changed, host := n.changed, n.host
		n.mu.Unlock()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			n.t.Fatalf("not seen: %s; of the host the agent says %v; statuses %v", want, host, n.statuses)
		}
	}
}

// awaitStatus waits until the last status of a pod is this one.
func (n *node) awaitStatus(uid string, want ambient.Status) {
	n.t.Helper()
	n.await(fmt.Sprintf("status %q of %s", want, uid), func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		all := n.statuses[uid]
		return len(all) > 0 && all[len(all)-1] == want
	})
}

// awaitSeen waits until the agent says that a pod has this status, whatever its annotation is.
func (n *node) awaitSeen(a *nodemode.Agent, uid string, want ambient.Status) {
	n.t.Helper()
	n.await(fmt.Sprintf("that the agent calls %s %q", uid, want), func() bool {
		return slices.ContainsFunc(a.Pods(), func(p agent.Pod) bool { return p.UID == uid && p.Seen.Status == want })
	})
}

// wantStillEnabled tests that a pod's annotation has never said anything but "enabled".
func (n *node) wantStillEnabled(pod ambient.Pod) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if got := slices.Compact(slices.Clone(n.statuses[pod.UID])); !slices.Equal(got, []ambient.Status{ambient.StatusEnabled}) {
		n.t.Errorf("the pod has had the statuses %q, want that it stays enabled", got)
	}
}

// eventually waits until a condition holds, of which nothing tells.
func (n *node) eventually(want string, holds func() bool) {
	n.t.Helper()
	deadline := time.After(time.Minute)
	for !holds() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			n.mu.Lock()
			defer n.mu.Unlock()
			n.t.Fatalf("not seen: %s; of the host the agent says %v; it holds %s", want, n.host, n.dump())
		}
	}
}

// members returns the members of the host's sets with their owners.
func (n *node) members() []string {
	n.t.Helper()
	state, err := n.options.Dataplane.Observe(n.t.Context(), n.options.Host, owner)
	if err != nil {
		n.t.Fatal(err)
	}
	var all []string
	for _, set := range state.Owners {
		for address, uid := range set {
			all = append(all, fmt.Sprintf("%s %s", address, uid))
		}
	}
	slices.Sort(all)
	return all
}

// wantMembers tests that these pods are in the sets, and nothing else.
func (n *node) wantMembers(pods ...ambient.Pod) {
	n.t.Helper()
	var want []string
	for _, pod := range pods {
		for _, address := range pod.Addresses {
			want = append(want, fmt.Sprintf("%s %s", address, pod.UID))
		}
	}
	slices.Sort(want)
	if got := n.members(); !slices.Equal(got, want) {
		n.t.Errorf("the sets hold %q, want %q", got, want)
	}
}

// way is how a connection goes.
type way int

const (
	direct   way = iota // not by a proxy
	captured            // by the proxy that is asked
	refused             // it fails at once
)

// connect makes a connection of each family, and returns how it goes.
func (n *node) connect(from, to *nodes.Place, proxy *nodes.Proxy) (way, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var ways []way
	for _, address := range to.Addresses {
		if proxy != nil {
			proxy.Takings() // forget
		}
		_, err := from.Visit(ctx, "tcp", netip.AddrPortFrom(address, 8080))
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			ways = append(ways, refused)
		case err != nil:
			return 0, fmt.Errorf("%s to %s: %w", from.Name, to.Name, err)
		case proxy != nil && len(proxy.Takings()) > 0:
			ways = append(ways, captured)
		default:
			ways = append(ways, direct)
		}
	}
	if slices.ContainsFunc(ways, func(w way) bool { return w != ways[0] }) {
		return 0, fmt.Errorf("%s to %s: the families go the ways %v", from.Name, to.Name, ways)
	}
	return ways[0], nil
}

// wantWay tests how connections of a pod go, and to it.
func (n *node) wantWay(pod ambient.Pod, proxy *nodes.Proxy, want way) {
	n.t.Helper()
	for _, ends := range [][2]*nodes.Place{{n.places[pod.UID], n.remote}, {n.remote, n.places[pod.UID]}} {
		if got, err := n.connect(ends[0], ends[1], proxy); err != nil || got != want {
			n.t.Errorf("%s to %s goes the way %d, %v, want %d", ends[0].Name, ends[1].Name, got, err, want)
		}
	}
}

// holds reports whether connections of a pod go a way, for eventually.
func (n *node) holds(pod ambient.Pod, proxy *nodes.Proxy, want way) func() bool {
	return func() bool {
		got, err := n.connect(n.places[pod.UID], n.remote, proxy)
		return err == nil && got == want
	}
}

// hostErrorIs waits until the agent reports an error about the host with a text.
func (n *node) hostErrorIs(text string) {
	n.t.Helper()
	n.await("an error about the host with "+text, func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.host != nil && strings.Contains(n.host.Error(), text)
	})
}

// agentPod is a pod in the agent's status.
type agentPod = agent.PodStatus

// errorHas reports whether an error has a text.
func errorHas(err error, text string) bool {
	return errors.Is(err, nodemode.ErrAddress) && strings.Contains(err.Error(), text)
}

// startOn has a proxy's pod listen.
func startOn(n *node, pod ambient.Pod) *nodes.Proxy {
	n.t.Helper()
	return n.places[pod.UID].StartProxy(n.t)
}

// ipv4 returns a place with its first address alone.
func ipv4(place *nodes.Place) *nodes.Place {
	same := *place
	same.Addresses = place.Addresses[:1]
	return &same
}
