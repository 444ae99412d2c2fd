// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/kernel"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// TestBranchProbes sends probes to a pod that the network's plugin routes by a table of its own.
// They arrive with the branch only, whose rules go with the plan.
func TestBranchProbes(t *testing.T) {
	t.Parallel()
	for name, backend := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, editsSets := backend.(hostBackend)
			if !editsSets {
				t.Fatal("the dataplane edits no live sets")
			}
			node := nodes.New(t)[0]
			pod := node.NewPod("7c1e", interception.IPv4, interception.IPv6)
			serve(t, pod)
			branches := branchesOf(t, node, pod)
			before := policyRules(t, node.Host)
			setHost(t, host, node.Host, pod)
			for _, branch := range branches {
				to := netip.AddrPortFrom(branch.Pod, 8080)
				if visit, err := node.Host.Visit(t.Context(), "tcp", to); !errors.Is(err, syscall.EHOSTUNREACH) {
					t.Errorf("without a branch: %v, %v, want that the node has no route", visit, err)
				}
			}
			setHost(t, host, node.Host, pod, branches...)
			for i, branch := range branches {
				wantProbe(t, node.Host, netip.AddrPortFrom(branch.Pod, 8080), ambient.IstioNumbers().Probes[i])
			}
			if err := backend.Remove(t.Context(), node.Host.Netns, "test-ambient"); err != nil {
				t.Error(err)
			}
			if after := policyRules(t, node.Host); after != before {
				t.Errorf("the policy rules are\n%swant\n%s", after, before)
			}
		})
	}
}

// branchesOf lets only a table of its own lead to a pod, as the plugin of AWS does, and returns the
// branches that HostPlan needs.
func branchesOf(t *testing.T, node *nodes.Node, pod *nodes.Place) (branches []ambient.Branch) {
	t.Helper()
	if err := kernel.Of(node.Host.Netns.File()).WriteSysctl("ipv4/tcp_early_demux", "0"); err != nil {
		t.Fatal(err)
	}
	for _, address := range pod.Addresses {
		ip := func(command string) {
			family := fmt.Sprintf("-%c", interception.FamilyOf(address).String()[1])
			sandboxtest.Run(t, node.Host.Netns.File(), "", append([]string{"ip", family}, strings.Fields(command)...)...)
		}
		ip("rule add pref 20 lookup local")
		ip("rule del pref 0 lookup local")
		ip("rule add pref 10 iif veth1 lookup 101")
		ip("route add " + address.String() + " dev veth1 table 101")
		ip("route add unreachable default table 101 metric 4000")
		ip("route add unreachable " + address.String())
		branches = append(branches, ambient.Branch{Pod: address, Link: "veth1", Table: 101, Priority: 10})
	}
	return branches
}

// policyRules lists those of both families.
func policyRules(t *testing.T, place *nodes.Place) string {
	t.Helper()
	in := place.Netns.File()
	return sandboxtest.Run(t, in, "", "ip", "-4", "rule") + sandboxtest.Run(t, in, "", "ip", "-6", "rule")
}
