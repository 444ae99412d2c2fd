// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest"
	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/ambient/zds"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/dataplanetest"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/upstreamtest"
)

// foreignDataplanes return those that find what other programs have.
func foreignDataplanes(t testing.TB) []ForeignDataplane {
	t.Helper()
	native, err := nftables.New(nftables.Options{Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	tables, err := iptables.New(iptables.Options{Foreign: true})
	if err != nil {
		t.Fatal(err)
	}
	return []ForeignDataplane{native, tables}
}

// readers are these, and one whose programs are not installed.
func readers(t testing.TB) []ForeignDataplane {
	t.Helper()
	all := foreignDataplanes(t)
	return append(all, withoutPrograms{all[0]})
}

// withoutPrograms is a dataplane whose programs are not installed.
type withoutPrograms struct{ ForeignDataplane }

func (withoutPrograms) Observe(context.Context, *interception.Netns, interception.Owner) (interception.State, error) {
	return interception.State{}, interception.ErrUnsupported
}

// formerAgent serves pod a to a proxy of its own, as Istio's agent does, until the test ends.
func (n *node) formerAgent(pod *dataplanetest.Pod, transparent bool) {
	n.t.Helper()
	socket := filepath.Join(n.t.TempDir(), "z")
	server, err := zds.Listen(n.t.Context(), socket, zds.Options{})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(ctx) })
	n.t.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	namespace, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = namespace.Close() }) // nothing was written
	if err := server.Set(zds.Workload{UID: "a", Name: "pod-a", Namespace: "shop", ServiceAccount: "account"}, namespace); err != nil {
		n.t.Fatal(err)
	}
	n.startProxy(ambienttest.StartOptions{ProxyOptions: ambienttest.ProxyOptions{Socket: socket, Transparent: transparent}})
	if err := server.Await(n.t.Context(), "a"); err != nil {
		n.t.Fatal(err)
	}
}

// TestTakeOver takes a pod over from Istio's agent: by each dataplane, from each program that the
// former one writes its rules by. New connections are opened all the while, and each is relayed;
// older ones live on.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		for _, program := range upstreamtest.Programs() {
			generations := []upstream.Generation{upstream.GenerationRedirect, upstream.GenerationTProxy}
			if program == upstreamtest.NFT {
				generations = []upstream.Generation{upstream.GenerationNative}
			}
			for _, generation := range generations {
				t.Run(fmt.Sprintf("%s from %s, %s", name, program, generation), func(t *testing.T) {
					t.Parallel()
					takeOver(t, dataplane, program, upstream.PodRules{Generation: generation, IPv6: true})
				})
			}
		}
	}
}

func takeOver(t *testing.T, dataplane hostDataplane, program upstreamtest.Program, u upstream.PodRules) {
	t.Helper()
	n := newNode(t)
	n.dataplane, n.options.Dataplane, n.options.Sets, n.options.TakeOver = dataplane, dataplane, dataplane, readers(t)
	// While iptables loads a plan, its guard drops new connections, and TCP tries again after a
	// second.
	pod := dataplanetest.NewPod(t, dataplanetest.PodOptions{Ports: []uint16{8080}, DropAfter: 10 * time.Second, RelayedWithin: relayedWithin})
	n.paths["a"] = pod.Path()
	n.formerAgent(pod, u.Generation == upstream.GenerationTProxy)
	upstreamtest.Install(t, pod.File(), u, program)
	client := netip.MustParseAddr("192.0.2.0")
	inbound := func() *dataplanetest.Connection {
		t.Helper()
		// Each connection has a client of its own: the proxy keeps the address and has another port,
		// which among hundreds of connections of one client would be that of an earlier one.
		if client = client.Next(); client.As4()[3] == 255 {
			client = netip.MustParseAddr("192.0.2.1")
		}
		c, err := pod.Connect(t.Context(), dataplanetest.Probe{
			From: dataplanetest.Elsewhere, Src: client, Dst: netip.MustParseAddrPort("10.244.1.10:8080"),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // the test may have closed it
		return c
	}
	before := n.relayed(pod)
	living := []*dataplanetest.Connection{n.open(pod), inbound()}
	if relayed := n.relayed(pod) - before; relayed != len(living) {
		t.Fatalf("the former agent's rules capture %d of %d connections", relayed, len(living))
	}
	a, _ := n.run()
	n.startProxy(ambienttest.StartOptions{ProxyOptions: ambienttest.ProxyOptions{
		Socket: n.options.Socket, Transparent: u.Generation == upstream.GenerationTProxy,
	}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.awaitStatus(a, "a", ambient.StatusEnabled)
		n.awaitPods(a, "at rest", func(pods []Pod) bool { return len(pods) == 1 && pods[0].Step == "" && pods[0].Err == nil })
	}()
	n.feed <- told(object("a"))
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		before := n.relayed(pod)
		opened := []*dataplanetest.Connection{inbound(), n.open(pod)}
		if relayed := n.relayed(pod) - before; relayed != len(opened) {
			t.Errorf("of %d connections %d are relayed", len(opened), relayed)
		}
		closeAll(t, opened) // each of hundreds has several descriptors
	}
	for _, connection := range living {
		n.exchange(connection)
	}
	if differs(n.recorded("a").Plan, n.state(pod)) {
		t.Error("the pod has not the agent's rules")
	}
	inside, err := interception.OpenNetns(pod.Path(), interception.NetnsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	for _, d := range foreignDataplanes(t) {
		state, err := d.Observe(t.Context(), inside, owner)
		if err != nil {
			t.Fatal(err)
		}
		if left, err := upstream.Recognise(state.Foreign, n.options.Numbers); err != nil || left != nil {
			t.Errorf("left: %+v, %v", left, err)
		}
	}
	// The former agent's route and policy rule have become the agent's.
	for _, what := range []string{"rule", "route"} {
		for _, family := range []string{"-4", "-6"} {
			shown := sandboxtest.Run(t, pod.File(), "", "ip", "-d", family, what, "show", "table", "100")
			if strings.Count(shown, "\n") != 1 || strings.Contains(shown, "proto boot") {
				t.Errorf("in table 100 is a %s of another owner: %s", what, shown)
			}
		}
	}
}

// TestDrainOfTProxy takes a pod over that has a connection to it which TPROXY has delivered to the
// proxy, and withdraws the pod: the rules wait for the connection's end.
func TestDrainOfTProxy(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		for _, program := range []upstreamtest.Program{upstreamtest.IPTablesNFT, upstreamtest.IPTablesLegacy} {
			t.Run(fmt.Sprintf("%s from %s", name, program), func(t *testing.T) {
				t.Parallel()
				drainOfTProxy(t, dataplane, program)
			})
		}
	}
}

func drainOfTProxy(t *testing.T, dataplane hostDataplane, program upstreamtest.Program) {
	t.Helper()
	n := newNode(t)
	n.dataplane, n.options.Dataplane, n.options.Sets, n.options.TakeOver = dataplane, dataplane, dataplane, readers(t)
	pod := n.pod("a")
	n.formerAgent(pod, true)
	upstreamtest.Install(t, pod.File(), upstream.PodRules{Generation: upstream.GenerationTProxy, IPv6: true}, program)
	var delivered []*dataplanetest.Connection
	before := n.relayed(pod)
	for client, to := range map[string]string{"192.0.2.9": "10.244.1.10:8080", "2001:db8::9": "[fd00:10:244:1::a]:8080"} {
		c, err := pod.Connect(t.Context(), dataplanetest.Probe{
			From: dataplanetest.Elsewhere, Src: netip.MustParseAddr(client), Dst: netip.MustParseAddrPort(to),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // the test may have closed it
		delivered = append(delivered, c)
	}
	if relayed := n.relayed(pod) - before; relayed != len(delivered) {
		t.Fatalf("TPROXY delivers %d of %d connections to the proxy", relayed, len(delivered))
	}
	a, _ := n.run()
	n.startProxy(ambienttest.StartOptions{ProxyOptions: ambienttest.ProxyOptions{Socket: n.options.Socket, Transparent: true}})
	n.feed <- told(object("a"))
	n.awaitStatus(a, "a", ambient.StatusEnabled)
	n.awaitPods(a, "at rest", func(pods []Pod) bool { return len(pods) == 1 && pods[0].Step == "" && pods[0].Err == nil })
	n.feed <- told(optedOut("a"))
	for _, connection := range delivered {
		n.awaitPods(a, "that it waits for the connection's end", func(pods []Pod) bool {
			return len(pods) == 1 && pods[0].Step == ambient.StepAwaitDrained
		})
		n.exchange(connection)
		if err := connection.Close(); err != nil {
			t.Error(err)
		}
	}
	n.awaitRest(a)
	if n.captured(pod) {
		t.Error("the rules are still there")
	}
}

// TestTakeOverBySeveral has rules of several programs in a pod, and dataplanes that decode some of
// them each, in any order: all go at once, and what only one of the dataplanes knows is no error.
func TestTakeOverBySeveral(t *testing.T) {
	t.Parallel()
	for name, reversed := range map[string]bool{"nftables first": false, "iptables first": true} {
		for _, programs := range [][]upstreamtest.Program{
			{upstreamtest.IPTablesNFT}, {upstreamtest.IPTablesLegacy}, {upstreamtest.NFT}, {upstreamtest.IPTablesLegacy, upstreamtest.IPTablesNFT}, upstreamtest.Programs(),
		} {
			t.Run(fmt.Sprintf("%s %s", name, programs), func(t *testing.T) {
				t.Parallel()
				pod, dataplanes := sandboxtest.NewPod(t), readers(t)
				if reversed {
					slices.Reverse(dataplanes)
				}
				for _, program := range programs {
					u := upstream.PodRules{Generation: upstream.GenerationRedirect, DNS: true, IPv6: true}
					if program == upstreamtest.NFT {
						u.Generation = upstream.GenerationNative
					}
					upstreamtest.InstallRules(t, pod.File(), u, program)
				}
				options := Options{TakeOver: dataplanes, Numbers: ambient.IstioNumbers(), Owner: owner}
				w := &worker{agent: &Agent{options: options}, namespace: pod.Netns}
				if err := w.takeOver(t.Context()); err != nil || !w.alone {
					t.Errorf("the rules of %s are not taken over: %v", programs, err)
				}
				left := pod.Run(t, "", "nft", "list", "ruleset") + pod.Run(t, "", "iptables-legacy-save") + pod.Run(t, "", "ip6tables-legacy-save")
				if strings.Contains(left, "ISTIO_") || strings.Contains(left, "istio-") {
					t.Errorf("left: %s", left)
				}
			})
		}
	}
}

func closeAll(t *testing.T, connections []*dataplanetest.Connection) {
	t.Helper()
	for _, connection := range connections {
		if err := connection.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTakeOverLeaves what it does not know.
func TestTakeOverLeaves(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.options.TakeOver = readers(t)
	pod := n.pod("a")
	n.formerAgent(pod, false)
	upstreamtest.Install(t, pod.File(), upstream.PodRules{Generation: upstream.GenerationRedirect, IPv6: true}, upstreamtest.IPTablesNFT)
	sandboxtest.Run(t, pod.File(), "", "iptables-nft", "-t", "nat", "-A", "ISTIO_OUTPUT", "-p", "tcp", "--dport", "9", "-j", "RETURN")
	a, _ := n.run()
	n.proxy()
	n.feed <- told(object("a"))
	n.awaitPods(a, "ErrUpstream", func(pods []Pod) bool {
		return len(pods) == 1 && errors.Is(pods[0].Err, ErrUpstream) && strings.Contains(pods[0].Err.Error(), "dport 9")
	})
	if !n.captured(pod) {
		t.Error("the pod has not the agent's rules")
	}
	// When the change is undone, the rules go.
	sandboxtest.Run(t, pod.File(), "", "iptables-nft", "-t", "nat", "-D", "ISTIO_OUTPUT", "-p", "tcp", "--dport", "9", "-j", "RETURN")
	n.awaitPods(a, "no error", func(pods []Pod) bool { return len(pods) == 1 && pods[0].Err == nil })
	if left := sandboxtest.Run(t, pod.File(), "", "iptables-nft-save"); strings.Contains(left, "ISTIO_") {
		t.Errorf("left: %s", left)
	}
}
