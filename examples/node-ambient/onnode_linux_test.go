// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/event"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/examples/internal/ambientconf"
	"github.com/meshcni/meshcni/examples/internal/ambientnews"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/choice"
	"github.com/meshcni/meshcni/interception/choice/standard"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/talk"
	"github.com/meshcni/meshcni/internal/testing/upstreamtest"
)

// captor is a node made of namespaces, whose own namespace captures its pods: one pod of the mesh,
// one for the proxy, and a pod on another node.
type captor struct {
	t                *testing.T
	dir              string
	source           *source
	node             *nodes.Node
	web, own, remote *nodes.Place // own is the proxy's
	proxy            *nodes.Proxy
	args             []string
}

// proxyUID and webUID are the UIDs of the pods.
const (
	webUID   = "1c6b2f1e-9d3c-4f7a-8a51-000000000001"
	proxyUID = "1c6b2f1e-9d3c-4f7a-8a51-000000000002"
)

func newCaptor(t *testing.T, settings string) *captor {
	t.Helper()
	both := nodes.New(t)
	families := []interception.Family{interception.IPv4, interception.IPv6}
	c := &captor{t: t, node: both[0], remote: both[1].NewPod("remote", families...)}
	c.web, c.own = c.node.NewPod(webUID, families...), c.node.NewPod(proxyUID, families...)
	for _, place := range []*nodes.Place{c.web, c.remote} {
		stop, err := place.Serve(8080)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
	}
	c.proxy = c.own.StartProxy(t)
	c.dir, c.source = feedPods(t, c.objects()...)
	c.args = []string{
		"-feed=" + c.path("feed"), "-events=" + c.path("pluginevent.sock"), "-journal=" + c.path("records"), "-proc=" + c.node.Roots().Proc,
		"-netns=" + strings.Join(c.node.Roots().Netns, ","), `-settings={"mode":"node","proxyNamespace":"mesh"` + settings + `}`,
	}
	return c
}

func (c *captor) path(name string) string { return filepath.Join(c.dir, name) }

// objects are the API server's of both pods. That of the pod of the mesh has no address yet.
func (c *captor) objects() []ambient.Pod {
	web := webPod()
	web.UID, web.Phase = webUID, "Running"
	return []ambient.Pod{web, {
		Pod:       interception.Pod{Namespace: "mesh", Name: "ztunnel-x", UID: proxyUID, Labels: map[string]string{"app": "ztunnel"}},
		Addresses: c.own.Addresses, Phase: "Running", Ready: true, Created: time.Unix(1, 0),
	}}
}

// enrol does what the plugin does, as soon as a process serves.
func (c *captor) enrol() error {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	pod := event.Pod{Namespace: "shop", Name: "web-0", UID: webUID, Container: "3e1c", Addresses: c.web.Addresses}
	decision, err := event.Enrol(ctx, c.path("pluginevent.sock"), pod, c.web.Netns.File())
	if err == nil && !decision.Capture {
		err = fmt.Errorf("the pod is not captured: %s", decision)
	}
	return err
}

// captured tests whether the connections of the pod go through the proxy, and come back.
func (c *captor) captured(want bool) {
	c.t.Helper()
	for _, ends := range [][2]*nodes.Place{{c.web, c.remote}, {c.remote, c.web}} {
		for _, address := range ends[1].Addresses {
			c.proxy.Takings() // forget
			if _, err := ends[0].Visit(c.t.Context(), "tcp", netip.AddrPortFrom(address, 8080)); err != nil {
				c.t.Errorf("%s to %s: %v", ends[0].Name, address, err)
			}
			if taken := c.proxy.Takings(); len(taken) > 0 != want {
				c.t.Errorf("%s to %s: the proxy has taken %v, want captured %t", ends[0].Name, address, taken, want)
			}
		}
	}
}

// state returns what the host's namespace has of the program.
func (c *captor) state() interception.State {
	c.t.Helper()
	_, state := c.written()
	return state
}

// written returns the dataplane by which the program has written to the host's namespace, and what
// it has there.
func (c *captor) written() (by choice.Candidate, has interception.State) {
	c.t.Helper()
	all, err := standard.Candidates(nftables.Options{}, iptables.Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, one := range all {
		state, err := one.Dataplane.Observe(c.t.Context(), c.node.Host.Netns, ambientconf.NodeOwner)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(state.Objects) > len(has.Objects) {
			by, has = one, state
		}
	}
	return by, has
}

// members returns the members of the sets, with their owners.
func (c *captor) members() (all []string) {
	c.t.Helper()
	for _, members := range c.state().Owners {
		for address, uid := range members {
			all = append(all, uid+" "+address.String())
		}
	}
	slices.Sort(all)
	return all
}

// wantMembers tests that the sets have the pod's addresses alone.
func (c *captor) wantMembers() {
	c.t.Helper()
	var want []string
	for _, address := range c.web.Addresses {
		want = append(want, webUID+" "+address.String())
	}
	slices.Sort(want)
	if got := c.members(); !slices.Equal(got, want) {
		c.t.Errorf("the sets hold %q, want %q", got, want)
	}
}

// dump lists the rules, routes, links and settings of a namespace.
func (c *captor) dump(of *nodes.Place) string {
	c.t.Helper()
	return sandboxtest.Run(c.t, of.Netns.File(), "", "sh", "-ec", `nft list ruleset; ip rule; ip -6 rule
		ip route show table all | { grep -v 'proto kernel' || true; }; ip -6 route show table all | { grep -v 'proto kernel' || true; }
		ip -br link | sed 's/[@ ].*//' | sort; sysctl -a -r 'net\.ipv4\.conf\..*\.rp_filter'`)
}

// TestOnNodeTakesOver has rules of Istio 1.20 on the node when the program starts: nothing is left
// of them once the pod is in the program's sets, and the pod is captured all the time.
func TestOnNodeTakesOver(t *testing.T) {
	t.Parallel()
	c := newCaptor(t, `,"dataplane":"nftables"`)
	_, link := c.own.Peer("eth0")
	upstreamtest.InstallNode(t, upstreamtest.Node{
		Release: upstream.NodeRelease120, Program: upstream.ProgramIPTablesNFT, Host: c.node.Host.Netns.File(), Proxy: c.own.Netns.File(),
		Link: link, Address: c.own.Addresses[0], HostAddress: c.own.Addresses[0].Prev(), Pods: map[netip.Addr]string{c.web.Addresses[0]: webUID},
	})
	ofIstio := func() bool { return strings.Contains(c.dump(c.node.Host), "ztunnel") }
	if !ofIstio() {
		t.Fatal("the node has no rules of Istio")
	}
	_, end := launch(t, c.args...)
	awaitSocket(t, c.path("pluginevent.sock"))
	if err := c.enrol(); err != nil {
		t.Fatal(err)
	}
	c.captured(true)
	for deadline := time.Now().Add(time.Minute); ofIstio(); { // the program looks each minute, and whenever rules change
		if time.Now().After(deadline) {
			t.Fatalf("rules of Istio are left:\n%s", c.dump(c.node.Host))
		}
		sandboxtest.Run(t, c.node.Host.Netns.File(), "", "nft", "add table ip poke; delete table ip poke")
		time.Sleep(20 * time.Millisecond)
	}
	c.captured(true)
	c.wantMembers()
	if code := end(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestOnNode has the node's namespace capture a pod, with each dataplane and by each kind of wires:
// the plugin's event adds the member, and the proxy takes the pod's connections, also without the
// program.
func TestOnNode(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{
		"chosen": "", "nftables and vxlan": `,"dataplane":"nftables","way":"vxlan"`, "iptables": `,"dataplane":"iptables","dns":true`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCaptor(t, settings)
			lines, end := launch(t, c.args...)
			awaitSocket(t, c.path("pluginevent.sock"))
			if err := c.enrol(); err != nil {
				t.Fatal(err)
			}
			c.captured(true)
			c.wantMembers()
			if status := <-c.source.statuses; status != ambient.StatusEnabled {
				t.Errorf("the source is asked for the status %q", status)
			}
			c.wantReports(lines)
			if _, err := os.Lstat(c.path("records")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("records of namespaces: %v, want none", err)
			}
			if code := end(); code != exitOK {
				t.Errorf("exit code %d", code)
			}
			for line := range lines { // that follow
				if line.Node != nil && (line.Node.Host != "" || line.Node.Proxies != 1) {
					t.Errorf("at its end the program reports %+v", *line.Node)
				}
			}
			c.wantMembers()
			c.captured(true)
		})
	}
}

// wantReports reads what the program reports, until the pod is as wanted and the proxy listens.
func (c *captor) wantReports(lines <-chan ambientnews.Line) {
	c.t.Helper()
	var pod ambientnews.Pod
	var node ambientnews.Node
	counts := map[string]int{}
	for !pod.Wanted || pod.Step != "" || !node.Complete || node.Proxies != 1 || counts["edit add"] == 0 {
		switch line := <-lines; {
		case line.Pod != nil:
			pod = *line.Pod
		case line.Node != nil:
			node = *line.Node
		case line.Count != nil:
			counts[line.Count.What+" "+line.Count.Of] += line.Count.Times
		}
	}
	if want := (ambientnews.Node{Complete: true, OnNode: true, Proxies: 1}); node != want {
		c.t.Errorf("the program reports of the node %+v, want %+v", node, want)
	}
	if pod.UID != webUID || pod.Rules != "planned" || pod.Proxy != "serves" || pod.Status != "enabled" || pod.Error != "" {
		c.t.Errorf("the program reports of the pod %+v", pod)
	}
}

// add is the plugin's ADD of the pod, without a kubeconfig.
func (c *captor) add(timeout time.Duration) error { return c.addIn(c.t.Context(), timeout) }

func (c *captor) addIn(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ips := fmt.Sprintf(`[{"address":"%s/30"},{"address":"%s/126"}]`, c.web.Addresses[0], c.web.Addresses[1])
	return addSandbox(ctx, c.dir, webUID, fmt.Sprintf("/proc/self/fd/%d", c.web.Netns.File().Fd()), ips)
}

// TestOnNodeADD has the plugin's ADD succeed once the pod's addresses are in the sets, and fail
// while no program serves, or no proxy: then the pod does not start.
func TestOnNodeADD(t *testing.T) {
	t.Parallel()
	c := newCaptor(t, "")
	if err := c.add(2 * time.Second); err == nil || !strings.Contains(err.Error(), "ask the agent at") {
		t.Errorf("without the program: %v", err)
	}
	c.proxy.Stop()
	program := build(t)
	process := begin(t, program, c.args...)
	awaitSocket(t, c.path("pluginevent.sock"))
	if err := c.add(2 * time.Second); err == nil || !strings.Contains(err.Error(), string(ambient.StepAwaitProxy)) {
		t.Errorf("without a proxy: %v", err)
	}
	if members := c.members(); len(members) > 0 {
		t.Errorf("without a proxy the sets hold %q", members)
	}
	added := make(chan error, 1)
	go func() { added <- c.add(time.Minute) }()
	c.proxy = c.own.StartProxy(t)
	err := <-added
	_ = process.cmd.Process.Kill() // and so it adds no member later
	_ = process.cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	c.wantMembers()
	c.captured(true)
	if err := c.add(2 * time.Second); err == nil || !strings.Contains(err.Error(), "ask the agent at") {
		t.Errorf("without the program again: %v", err)
	}
}

// TestOnNodeRefusesAddresses has a pod with the proxy's address: it would capture the proxy.
func TestOnNodeRefusesAddresses(t *testing.T) {
	t.Parallel()
	c := newCaptor(t, "")
	launch(t, c.args...)
	awaitSocket(t, c.path("pluginevent.sock"))
	if err := c.enrol(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	pod := event.Pod{Namespace: "shop", Name: "web-0", UID: webUID, Container: "4f2d", Addresses: c.own.Addresses}
	_, err := event.Enrol(ctx, c.path("pluginevent.sock"), pod, c.web.Netns.File())
	if own, is := errors.AsType[*event.Error](err); !is || own.Code != event.CodeRefused || !strings.Contains(err.Error(), "the proxy mesh/ztunnel-x") {
		t.Errorf("a pod with the proxy's address: %v", err)
	}
}

// TestOnNodeTellsOfProxyAndHost has a proxy that ends, and then one that cannot be used: operators
// and the daemon learn of both.
func TestOnNodeTellsOfProxyAndHost(t *testing.T) {
	t.Parallel()
	c := newCaptor(t, "")
	lines, _ := launch(t, c.args...)
	awaitSocket(t, c.path("pluginevent.sock"))
	if err := c.enrol(); err != nil {
		t.Fatal(err)
	}
	asked, err := event.Pods(t.Context(), c.path("pluginevent.sock"), web())
	if err != nil || asked.Proxy.Connection != event.ProxyConnected || asked.Host != "" || len(asked.Pods) != 1 {
		t.Fatalf("%+v, %v", asked, err)
	}
	if got := asked.Pods[0]; !got.InSets || got.Rules != "planned" || got.Listeners != "serves" || got.Status != "enabled" || got.ForeignError != "" {
		t.Errorf("the pod is %+v", got)
	}
	awaitNode(lines, func(node ambientnews.Node) bool { return node.Proxies == 1 })
	c.proxy.Stop()
	awaitNode(lines, func(node ambientnews.Node) bool { return node.Proxies == 0 })
	unusable := c.objects()[1]
	unusable.UID, unusable.Name, unusable.HostNetwork, unusable.Created = "7f0c", "ztunnel-y", true, time.Unix(2, 0)
	c.source.changes <- ambient.Change{Pods: []ambient.Pod{unusable}}
	awaitNode(lines, func(node ambientnews.Node) bool { return strings.Contains(node.Host, "mesh/ztunnel-y is ready") })
	asked, err = event.Pods(t.Context(), c.path("pluginevent.sock"), event.Selection{})
	if err != nil || !strings.Contains(asked.Host, "the node's own network") || asked.Proxy.Connection != event.ProxyLost || asked.Proxy.Error != "" {
		t.Errorf("%+v, %v", asked, err)
	}
	c.source.changes <- ambient.Change{Gone: []string{"7f0c"}}
	awaitNode(lines, func(node ambientnews.Node) bool { return node.Host == "" })
}

// awaitNode waits until the program reports a state of the node.
func awaitNode(lines <-chan ambientnews.Line, is func(ambientnews.Node) bool) {
	for line := range lines {
		if line.Node != nil && is(*line.Node) {
			return
		}
	}
}

// TestOnNodeIsWithdrawn takes all pods out of the mesh. The host and the proxy's namespace are then
// as they were, and so they stay. The file about the proxies is gone.
func TestOnNodeIsWithdrawn(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"veth", "vxlan"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			c := newCaptor(t, `,"dataplane":"nftables","way":"`+way+`"`)
			before, proxyBefore := c.dump(c.node.Host), c.dump(c.own)
			_, end := launch(t, c.args...)
			awaitSocket(t, c.path("pluginevent.sock"))
			if err := c.enrol(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(c.path("records.node.json")); err != nil || c.dump(c.node.Host) == before {
				t.Fatalf("the host is as before, or has no file about its proxy: %v", err)
			}
			var out []string
			left, err := event.Withdraw(t.Context(), c.path("pluginevent.sock"), event.Selection{}, func(pod event.PodState) { out = append(out, pod.String()) })
			if err != nil || len(left) > 0 || !slices.Equal(out, []string{"shop/web-0"}) {
				t.Fatalf("out %q, left %v, %v", out, left, err)
			}
			for want := range slices.Values([]ambient.Status{ambient.StatusEnabled, ambient.NoStatus}) {
				if status := <-c.source.statuses; status != want {
					t.Errorf("the source is asked for the status %q, want %q", status, want)
				}
			}
			for range 2 {
				if after := c.dump(c.node.Host); after != before {
					t.Errorf("the host has\n%s\nwant\n%s", after, before)
				}
				if after := c.dump(c.own); after != proxyBefore {
					t.Errorf("the proxy's namespace has\n%s\nwant\n%s", after, proxyBefore)
				}
				if _, err := os.Lstat(c.path("records.node.json")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the file about the proxies: %v, want none", err)
				}
				c.captured(false)
				end()
			}
		})
	}
}

// TestOnNodeDrainsAsSet takes all pods out of the mesh while a captured connection is open. The
// host's rules stay for drain-timeout, and not for the agent's own time: an uninstall waits for
// less than that.
func TestOnNodeDrainsAsSet(t *testing.T) {
	t.Parallel()
	c := newCaptor(t, `,"drainTimeout":"100ms"`)
	talk.Echo(t, c.remote)
	before := c.dump(c.node.Host)
	launch(t, c.args...)
	awaitSocket(t, c.path("pluginevent.sock"))
	if err := c.enrol(); err != nil {
		t.Fatal(err)
	}
	conn := talk.Call(t, c.web, c.remote.Addresses[0])
	if err := talk.Say(conn, "through the proxy"); err != nil || len(c.proxy.Takings()) == 0 {
		t.Fatalf("the proxy has taken no connection: %v", err)
	}
	const ownTime = 30 * time.Second // of nodemode.Options.DrainTimeout
	ctx, cancel := context.WithTimeout(t.Context(), ownTime-time.Second)
	defer cancel()
	left, err := event.Withdraw(ctx, c.path("pluginevent.sock"), event.Selection{}, func(event.PodState) {})
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if after := c.dump(c.node.Host); after != before {
		t.Errorf("the host has\n%s\nwant\n%s", after, before)
	}
}

// TestOnNodeIsHandedOver is a rolling update: connections of the pod go through the proxy at any
// time, and no ADD fails, of which one follows another.
func TestOnNodeIsHandedOver(t *testing.T) {
	t.Parallel()
	c := newCaptor(t, "")
	program := build(t)
	older := begin(t, program, c.args...)
	awaitSocket(t, c.path("pluginevent.sock"))
	next := addAgain(t, func(ctx context.Context) error { return c.addIn(ctx, time.Minute) })
	next()
	c.captured(true)
	stood := c.dump(c.node.Host)
	newer := begin(t, program, c.args...)
	older.await("stands by")
	c.captured(true)
	next()
	if err := newer.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = newer.cmd.Wait() // it was killed
	c.captured(true)
	older.await("serves again")
	next()
	c.captured(true)
	c.wantMembers()
	if now := c.dump(c.node.Host); now != stood {
		t.Errorf("the host has\n%s\nwant\n%s", now, stood)
	}
	older.end()
}
