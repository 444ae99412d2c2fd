// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/upstream"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
	"github.com/meshcni/meshcni/internal/testing/upstreamtest"
)

// membersOf returns the addresses of pods as the former agent's sets have them.
func membersOf(pods ...ambient.Pod) map[netip.Addr]string {
	members := map[netip.Addr]string{}
	for _, pod := range pods {
		for _, address := range pod.Addresses {
			members[address] = pod.UID
		}
	}
	return members
}

// upstreamOnHost returns what the host has of Istio's agent, in words.
func (n *node) upstreamOnHost() (left []string) {
	n.t.Helper()
	for _, d := range foreignDataplanes(n.t) {
		state, err := d.Observe(n.t.Context(), n.options.Host, owner)
		if err != nil {
			n.t.Fatal(err)
		}
		found, err := upstream.RecogniseHost(state.Foreign, n.options.Numbers)
		if err != nil {
			n.t.Fatal(err)
		}
		for _, rules := range found {
			left = append(left, fmt.Sprintf("%s %q", rules.Program, rules.Differences))
		}
	}
	return append(left, upstreamtest.HostSets(n.t, n.options.Host.File())...)
}

// awaitHostAlone waits until the host has nothing of Istio's agent.
func (n *node) awaitHostAlone(a *Agent) {
	n.t.Helper()
	eventually(n.t, func() error {
		if left := n.upstreamOnHost(); left != nil {
			return fmt.Errorf("left on the host: %q; the agent says %s", left, describe(a))
		}
		return nil
	})
}

// TestTakeOverHost takes a host over from Istio's agent, by each dataplane, from each program that
// the former one writes by. The host probes its pods all the while: each probe comes from the probe
// address, and reaches the application.
func TestTakeOverHost(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		for _, program := range upstreamtest.Programs() {
			t.Run(fmt.Sprintf("%s from %s", name, program), func(t *testing.T) {
				t.Parallel()
				takeOverHost(t, dataplane, program)
			})
		}
	}
}

func takeOverHost(t *testing.T, dataplane hostDataplane, program upstreamtest.Program) {
	t.Helper()
	n := newHostNode(t, dataplane)
	n.options.TakeOver = readers(t)
	pods := []ambient.Pod{n.start(interception.IPv4), n.start(families()...)}
	upstreamtest.InstallHost(t, n.options.Host.File(), true, program, membersOf(pods...))
	n.mustProbe(pods...)
	n.proxy()
	a, _ := n.run()
	over := make(chan struct{})
	var probing sync.WaitGroup
	probing.Go(func() {
		pace := time.NewTicker(2 * time.Millisecond) // else the host would run out of ports
		defer pace.Stop()
		for {
			select {
			case <-over:
				return
			case <-pace.C:
				n.mustProbe(pods...)
			}
		}
	})
	defer probing.Wait()
	defer close(over)
	n.feed <- told(pods...)
	n.awaitSelection(a, uids(pods...))
	n.awaitHostAlone(a)
	if got := n.members(); len(got) != 3 {
		t.Errorf("members %v, want three addresses", got)
	}
}

// TestTakeOverHostWaits has a pod of the mesh that is in the former agent's sets alone, as the
// agent cannot find it: the former rules stay, and its probes pass by them. When the pod is found
// they go.
func TestTakeOverHostWaits(t *testing.T) {
	t.Parallel()
	for _, program := range upstreamtest.Programs() {
		t.Run(string(program), func(t *testing.T) {
			t.Parallel()
			n := newHostNode(t, hostDataplanes(t)["nftables"])
			n.options.TakeOver = readers(t)
			found, late := n.start(interception.IPv4), n.start(families()...)
			upstreamtest.InstallHost(t, n.options.Host.File(), true, program, membersOf(found, late))
			n.proxy()
			a, _ := n.run()
			unknown := late
			unknown.Addresses = nil // so nothing leads to its namespace
			n.feed <- told(found, unknown)
			n.awaitPods(a, "that one pod is served", func(pods []Pod) bool { return served(pods) == 1 })
			if err := a.takeOverHost(t.Context()); err != nil {
				t.Error(err)
			}
			if left := n.upstreamOnHost(); left == nil {
				t.Error("the former agent's rules are gone, and a pod is in its sets alone")
			}
			n.mustProbe(found, late)
			n.feed <- told(late)
			n.awaitHostAlone(a)
			n.mustProbe(found, late)
		})
	}
}

// TestHostSetsThatAreLeft has an earlier agent end when it has removed the rules of Istio's agent,
// and not yet its sets: the next agent removes them.
func TestHostSetsThatAreLeft(t *testing.T) {
	t.Parallel()
	n := newHostNode(t, hostDataplanes(t)["nftables"])
	n.options.TakeOver = readers(t)
	pod := n.start(families()...)
	upstreamtest.InstallHost(t, n.options.Host.File(), true, upstreamtest.IPTablesNFT, membersOf(pod))
	for _, program := range []string{"iptables-nft", "ip6tables-nft"} {
		sandboxtest.Run(t, n.options.Host.File(), "", program, "-t", "nat", "-D", "POSTROUTING", "-j", "ISTIO_POSTRT")
		sandboxtest.Run(t, n.options.Host.File(), "", program, "-t", "nat", "-F", "ISTIO_POSTRT")
		sandboxtest.Run(t, n.options.Host.File(), "", program, "-t", "nat", "-X", "ISTIO_POSTRT")
	}
	if left := n.upstreamOnHost(); len(left) != 2 {
		t.Fatalf("left on the host: %q, want two sets", left)
	}
	n.proxy()
	a, _ := n.run()
	n.feed <- told(pod)
	n.awaitHostAlone(a)
	n.mustProbe(pod)
}

// TestTakeOverHostLeaves has rules on the host that another program has changed: they stay, and the
// agent tells of them. They go when the change is undone.
func TestTakeOverHostLeaves(t *testing.T) {
	t.Parallel()
	n := newHostNode(t, hostDataplanes(t)["nftables"])
	n.options.TakeOver = readers(t)
	reports := make(chan error, 100)
	n.options.ObserveHost = func(err error) { reports <- err }
	awaitReport := func(is func(error) bool) {
		t.Helper()
		for deadline := time.After(time.Minute); ; {
			select {
			case err := <-reports:
				if is(err) {
					return
				}
			case <-deadline:
				t.Fatalf("no such report; left: %q", n.upstreamOnHost())
			}
		}
	}
	pod := n.start(families()...)
	upstreamtest.InstallHost(t, n.options.Host.File(), true, upstreamtest.IPTablesNFT, membersOf(pod))
	rule := []string{"iptables-nft", "-t", "nat", "-A", "ISTIO_POSTRT", "-p", "tcp", "--dport", "9", "-j", "RETURN"}
	sandboxtest.Run(t, n.options.Host.File(), "", rule...)
	n.proxy()
	a, _ := n.run()
	n.feed <- told(pod)
	awaitReport(func(err error) bool { return errors.Is(err, ErrUpstream) && strings.Contains(err.Error(), "dport 9") })
	n.mustProbe(pod)
	if left := n.upstreamOnHost(); left == nil {
		t.Error("rules that another program has changed were removed")
	}
	rule[3] = "-D"
	sandboxtest.Run(t, n.options.Host.File(), "", rule...)
	awaitReport(func(err error) bool { return err == nil })
	n.awaitHostAlone(a)
	n.mustProbe(pod)
}
