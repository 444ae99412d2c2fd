// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// branchUID is the UID of the pod that has tables of its own.
const branchUID = "1c6b2f1e-9d3c-4f7a-8a51-000000000001"

// newBranch makes a node with an agent, and a pod to which only a table of its own leads, as the
// plugin of AWS has it for pods with security groups.
func newBranch(t *testing.T, dataplane hostDataplane, branches bool) (n *node, a *Agent, host, pod *nodes.Place) {
	t.Helper()
	made := nodes.New(t)[0]
	host, pod = made.Host, made.NewPod(branchUID, interception.IPv4, interception.IPv6)
	stop, err := pod.Serve(8080)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	for _, address := range pod.Addresses {
		ip := func(command string) {
			family := fmt.Sprintf("-%c", interception.FamilyOf(address).String()[1])
			sandboxtest.Run(t, host.Netns.File(), "", append([]string{"ip", family}, strings.Fields(command)...)...)
		}
		ip("rule add pref 20 lookup local")
		ip("rule del pref 0 lookup local")
		ip("rule add pref 10 iif veth1 lookup 101")
		ip("rule add pref 11 iif veth1 lookup 102")          // has no route to the pod
		ip("rule add pref 12 fwmark 1 iif veth1 lookup 101") // not for all of the link
		ip("rule add pref 13 iif gone lookup 103")           // its link is gone
		ip("route add " + address.String() + " dev veth1 table 101")
		ip("route add unreachable default table 101 metric 4000")
		ip("route add unreachable " + address.String())
	}
	n = newNode(t)
	finder, err := podnetns.NewFinder(made.Roots())
	if err != nil {
		t.Fatal(err)
	}
	n.dataplane, n.options.Dataplane, n.options.Sets = dataplane, dataplane, dataplane
	n.options.Host, n.options.Finder, n.options.Branches = host.Netns, finder, branches
	a, _ = n.run()
	n.proxy()
	return n, a, host, pod
}

// branchPod is the API server's object of the pod.
func branchPod(pod *nodes.Place) ambient.Pod {
	object := object("a")
	object.UID, object.Addresses = branchUID, pod.Addresses
	return object
}

func policyRules(t *testing.T, place *nodes.Place) string {
	t.Helper()
	in := place.Netns.File()
	return sandboxtest.Run(t, in, "", "ip", "-4", "rule") + sandboxtest.Run(t, in, "", "ip", "-6", "rule")
}

// TestBranches enrols a pod that the network's plugin routes by a table of its own: its probes
// arrive from the time it is enrolled. When it is withdrawn, the policy rules are as before.
func TestBranches(t *testing.T) {
	t.Parallel()
	for name, dataplane := range hostDataplanes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, a, host, pod := newBranch(t, dataplane, true)
			if err := kernel.Of(host.Netns.File()).WriteSysctl("ipv4/tcp_early_demux", "0"); err != nil {
				t.Fatal(err)
			}
			before := policyRules(t, host)
			n.feed <- told(branchPod(pod))
			n.awaitStatus(a, branchUID, ambient.StatusEnabled)
			for i, address := range pod.Addresses {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // a lost answer would take minutes
				defer cancel()
				visit, err := host.Visit(ctx, "tcp", netip.AddrPortFrom(address, 8080))
				if from := n.options.Numbers.Probes[i]; err != nil || visit.Client.Addr() != from {
					t.Errorf("a probe of %s arrives from %v, %v, want %s", address, visit.Client, err, from)
				}
			}
			for range 2 { // another program removes one, and the agent sees it
				sandboxtest.Run(t, host.Netns.File(), "", "ip", "rule", "del", "pref", "512")
				n.awaitRules(host, "lookup 101", true)
			}
			left := branchPod(pod)
			left.Labels = nil
			n.feed <- told(left)
			n.awaitRest(a)
			if after := policyRules(t, host); after != before {
				t.Errorf("the policy rules are\n%swant\n%s", after, before)
			}
		})
	}
}

// awaitRules waits until the host has a policy rule of priority 512 with these words, or none.
func (n *node) awaitRules(host *nodes.Place, words string, want bool) {
	n.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		has := false
		for line := range strings.Lines(sandboxtest.Run(n.t, host.Netns.File(), "", "ip", "-4", "rule")) {
			has = has || strings.HasPrefix(line, "512:") && strings.Contains(line, words)
		}
		if has == want {
			return
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("the host has a rule with %q: %t", words, has)
		}
	}
}

// TestNoBranches has the setting off, or the kernel's early demultiplexing on: the host has no
// policy rules for the pod, which its probes do not reach.
func TestNoBranches(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		branches bool
		demux    string
	}{"setting": {false, "0"}, "early demultiplexing": {true, "1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, a, host, pod := newBranch(t, hostDataplanes(t)["nftables"], test.branches)
			if err := kernel.Of(host.Netns.File()).WriteSysctl("ipv4/tcp_early_demux", test.demux); err != nil {
				t.Fatal(err)
			}
			before := policyRules(t, host)
			n.feed <- told(branchPod(pod))
			n.awaitStatus(a, branchUID, ambient.StatusEnabled)
			if after := policyRules(t, host); after != before {
				t.Errorf("the policy rules are\n%swant\n%s", after, before)
			}
			if visit, err := host.Visit(t.Context(), "tcp", netip.AddrPortFrom(pod.Addresses[0], 8080)); !errors.Is(err, syscall.EHOSTUNREACH) {
				t.Errorf("a probe: %v, %v, want that the node has no route", visit, err)
			}
		})
	}
}
