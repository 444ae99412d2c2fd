// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/ambient/ambienttest/nodes"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/iptables"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// The tests of this file show that the agent lacks what Istio 1.18 to 1.20 did: the second table of
// docs/ambient-complaints.md lists it.

// TestRulesOfTheProxysPodStay has rules of another program in the chains of the proxy's namespace
// that Istio's agent flushed whole. They stay while the proxy serves, and all is as before after
// it.
func TestRulesOfTheProxysPodStay(t *testing.T) {
	t.Parallel()
	for name, dataplane := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dataplane)
			web := n.pod()
			proxyPod, proxy := n.proxy()
			inside := n.places[proxyPod.UID].Netns.File()
			rules := []string{"-t mangle -A PREROUTING -p tcp -m tcp --dport 9 -j ACCEPT", "-t nat -A OUTPUT -p tcp -m tcp --dport 9 -j RETURN"}
			for _, program := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
				for _, rule := range rules {
					sandboxtest.Run(t, inside, "", append([]string{program}, strings.Fields(rule)...)...)
				}
			}
			before := n.dumpOf(inside)
			if count := strings.Count(before, "--dport 9"); count != 8 {
				t.Fatalf("%d rules, want 8:\n%s", count, before)
			}
			a, _ := n.run()
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.wantWay(web, proxy, captured)
			during := n.dumpOf(inside)
			for line := range strings.Lines(before) {
				if !strings.Contains(during, line) {
					t.Errorf("missing %s", line)
				}
			}
			n.harm(a.Withdraw(t.Context(), func(agent.Pod) {}))
			if diff := cmp.Diff(before, n.dumpOf(inside)); diff != "" {
				t.Errorf("the proxy's namespace (-before +after):\n%s", diff)
			}
		})
	}
}

// TestNamespaceOfTheProxyChanges has the Kubernetes namespaces of the proxy and of another pod
// change their labels: Istio's agent set its rules up anew, and here nothing changes on the host.
func TestNamespaceOfTheProxyChanges(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web, late := n.pod(), n.pod()
	proxyPod, proxy := n.proxy()
	n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	stood := n.dump()
	for _, labels := range []map[string]string{{"istio.io/dataplane-mode": "ambient"}, {"a": "b"}, nil} {
		n.feed <- ambient.Change{Namespaces: []ambient.Namespace{{Name: "mesh", Labels: labels}, {Name: "shop", Labels: labels}}}
	}
	n.feed <- ambient.Change{Pods: []ambient.Pod{late}}
	n.awaitStatus(late.UID, ambient.StatusEnabled) // and so all before it was looked at
	n.feed <- ambient.Change{Gone: []string{late.UID}}
	n.eventually("the pod's addresses are out", func() bool { return len(n.members()) == len(web.Addresses) })
	if diff := cmp.Diff(stood, n.dump()); diff != "" {
		t.Errorf("the host (-before +after):\n%s", diff)
	}
	n.wantWay(web, proxy, captured)
	n.wantStatuses(web, ambient.StatusEnabled)
}

// refusing is an editor of sets that the kernel refuses while it is armed, or so many times.
type refusing struct {
	agent.SetEditor

	armed atomic.Bool
	times atomic.Int32
}

func (r *refusing) UpdateSet(
	ctx context.Context, in *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit,
) error {
	if r.armed.Load() || r.times.Add(-1) >= 0 {
		return errors.New("the kernel refuses the member")
	}
	return r.SetEditor.UpdateSet(ctx, in, owner, set, edit)
}

// TestRefusedMemberIsNoStatus has the kernel refuse a member: the pod is not called enabled, and
// its error says why. One that is enabled and loses its member is pending until it has the member
// again.
func TestRefusedMemberIsNoStatus(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	sets := &refusing{SetEditor: n.options.Sets}
	n.options.Sets = sets
	web := n.pod()
	proxyPod, proxy := n.proxy()
	a, _ := n.run()
	refused := func() bool {
		pods := a.Status(web.UID).Pods
		return len(pods) == 1 && pods[0].Step == ambient.StepEnter && pods[0].Err != nil &&
			strings.Contains(pods[0].Err.Error(), "edit the set of meshed pods: the kernel refuses the member")
	}
	sets.armed.Store(true)
	n.feed <- told(proxyPod, web)
	n.await("the pod's error", refused)
	n.wantStatuses(web)
	n.wantMembers()
	n.wantWay(web, proxy, direct)
	sets.armed.Store(false)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	sets.armed.Store(true)
	file := n.options.Host.File()
	sandboxtest.Run(t, file, "", "nft", "delete", "element", "inet", string(owner), "set-meshed-v4", fmt.Sprintf("{ %s }", web.Addresses[0]))
	n.await("the pod's error again", refused)
	n.awaitSeen(a, web.UID, ambient.StatusPending)
	sets.armed.Store(false)
	n.awaitSeen(a, web.UID, ambient.StatusEnabled)
	n.wantMembers(web)
	n.wantWay(web, proxy, captured)
}

// stopping is an editor of sets that waits until the agent ends, once a test has armed it.
type stopping struct {
	agent.SetEditor
	armed   atomic.Bool
	waiting chan struct{} // gets an element for each edit
}

func (s *stopping) UpdateSet(ctx context.Context, ns *interception.Netns, owner interception.Owner, set interception.SetName, edit interception.SetEdit) error {
	if s.armed.Load() {
		s.waiting <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return s.SetEditor.UpdateSet(ctx, ns, owner, set, edit)
}

// TestEndOfTheAgentIsNoDoubt ends an agent while it puts a pod back into the sets. That it does not
// get there says nothing of the pod: the status stays.
func TestEndOfTheAgentIsNoDoubt(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	sets := &stopping{SetEditor: n.options.Sets, waiting: make(chan struct{}, 100)}
	n.options.Sets = sets
	web := n.pod()
	proxyPod, _ := n.proxy()
	_, end := n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	sets.armed.Store(true)
	sandboxtest.Run(t, n.options.Host.File(), "", "nft", "delete", "element", "inet", string(owner), "set-meshed-v4", fmt.Sprintf("{ %s }", web.Addresses[0]))
	<-sets.waiting
	end()
	n.wantStatuses(web, ambient.StatusEnabled)
}

// TestManyAddresses has a pod with 70,000 addresses, which are more than an ipset takes unless it
// is told to: all of them are in the set, and leave it with the pod.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	const many = 70_000
	for name, dataplane := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dataplane)
			web := n.pod()
			proxyPod, proxy := n.proxy()
			n.run()
			for address := netip.MustParseAddr("172.16.0.1"); len(web.Addresses) < many; address = address.Next() {
				web.Addresses = append(web.Addresses, address)
			}
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			if got := len(n.members()); got != many {
				t.Errorf("the sets have %d members, want %d", got, many)
			}
			n.wantWay(web, proxy, captured)
			n.feed <- ambient.Change{Gone: []string{web.UID}}
			n.eventually("the sets are empty", func() bool { return len(n.members()) == 0 })
			n.wantWay(web, proxy, direct)
		})
	}
}

// TestProgramsMayWarn has the programs of iptables say something on their standard error, as those
// of nf_tables do where there are rules of the legacy form: the exit code counts.
func TestProgramsMayWarn(t *testing.T) {
	t.Parallel()
	for _, flavour := range []iptables.Flavour{iptables.NFT, iptables.Legacy} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			said := filepath.Join(t.TempDir(), "said")
			programs := map[string][]string{}
			for _, of := range []string{"iptables", "ip6tables"} {
				for _, does := range []string{"restore", "save"} {
					name := fmt.Sprintf("%s-%s-%s", of, flavour, does)
					path, err := exec.LookPath(name)
					if err != nil {
						t.Fatal(err)
					}
					programs[name] = []string{"/bin/sh", "-c", `echo "# Warning: something" >&2; echo "$0" >>"$1"; shift; exec "$0" "$@"`, path, said}
				}
			}
			dataplane, err := iptables.New(iptables.Options{Flavour: flavour, Programs: programs})
			if err != nil {
				t.Fatal(err)
			}
			n := newNode(t, dataplane)
			web := n.pod()
			proxyPod, proxy := n.proxy()
			before := n.dump()
			a, _ := n.run()
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.wantWay(web, proxy, captured)
			n.harm(a.Withdraw(t.Context(), func(agent.Pod) {}))
			if diff := cmp.Diff(before, n.dump()); diff != "" {
				t.Errorf("the host (-before +after):\n%s", diff)
			}
			text, err := os.ReadFile(said)
			n.harm(err)
			for name := range programs {
				if !strings.Contains(string(text), name) {
					t.Errorf("%s was not started, so that the test shows nothing about it", name)
				}
			}
		})
	}
}

// TestProxyIsFoundByItsProcess has nothing mounted where container runtimes mount the namespaces of
// pods.
func TestProxyIsFoundByItsProcess(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web := n.pod()
	proxyPod, proxy := n.proxy()
	finder, err := podnetns.NewFinder(podnetns.Roots{Proc: n.made.Roots().Proc})
	n.harm(err)
	n.options.Finder = finder
	n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.wantWay(web, proxy, captured)
}

// TestPodsOfABridge has a pod and the proxy each on a bridge of the node, as plugins for a network
// of the node make them: there is neither a route to a pod alone, nor a veth with its address.
func TestPodsOfABridge(t *testing.T) {
	t.Parallel()
	for name, dataplane := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dataplane)
			web := n.pod()
			proxyPod, proxy := n.proxy()
			for i, pod := range []ambient.Pod{web, proxyPod} {
				n.bridge(fmt.Sprint("cni", i), n.places[pod.UID])
			}
			n.run()
			n.feed <- told(proxyPod, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.wantWay(web, proxy, captured)
		})
	}
}

// bridge puts the node's end of a pod's link on a bridge, which gets the link's addresses.
func (n *node) bridge(name string, pod *nodes.Place) {
	n.t.Helper()
	ip := func(line string) {
		n.t.Helper()
		sandboxtest.Run(n.t, n.options.Host.File(), "", append([]string{"ip"}, strings.Fields(line)...)...)
	}
	_, link := pod.Peer("eth0")
	ip("link add " + name + " type bridge")
	for _, address := range pod.Addresses {
		prefix := netip.PrefixFrom(address.Prev(), map[bool]int{true: 30, false: 126}[address.Is4()])
		ip(fmt.Sprintf("address del %s dev %s", prefix, link))
		ip(fmt.Sprintf("address add %s dev %s nodad", prefix, name))
	}
	ip(fmt.Sprintf("link set %s master %s", link, name))
	ip("link set " + name + " up")
}

// TestFiltersOfOthersStay has another program's clsact, to which its filters belong, at the links
// of a pod and of the proxy, on the node. It stays while both are in the mesh, and after it.
func TestFiltersOfOthersStay(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web := n.pod()
	proxyPod, proxy := n.proxy()
	tc := func(line string, pod ambient.Pod) string {
		_, link := n.places[pod.UID].Peer("eth0")
		return sandboxtest.Run(t, n.options.Host.File(), "", append([]string{"tc", "qdisc"}, strings.Fields(fmt.Sprintf(line, link))...)...)
	}
	both := func(line string) string { return tc(line, web) + tc(line, proxyPod) }
	both("add dev %s clsact")
	before := both("show dev %s")
	if strings.Count(before, "clsact") != 2 {
		t.Fatalf("the links have\n%s", before)
	}
	a, _ := n.run()
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.wantWay(web, proxy, captured)
	if diff := cmp.Diff(before, both("show dev %s")); diff != "" {
		t.Errorf("in the mesh (-before +now):\n%s", diff)
	}
	n.harm(a.Withdraw(t.Context(), func(agent.Pod) {}))
	if diff := cmp.Diff(before, both("show dev %s")); diff != "" {
		t.Errorf("after it (-before +now):\n%s", diff)
	}
}
