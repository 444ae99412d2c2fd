// SPDX-License-Identifier: Apache-2.0

package nodemode_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/netfacts"
	"github.com/meshcni/meshcni/interception/podnetns"
	"github.com/meshcni/meshcni/internal/testing/fakenode"
)

// The tests of this file are named after what users of ambient mode complain of:
// docs/ambient-complaints.md lists the complaints (E1 and so on).

// TestHostHoldsTheListedAlone lists what the owner has on the host after a change of proxies, as
// operators see it: that is the plan. Without it the host is as it was before the agent, and with
// nothing else, put back by hand, it is as it was with the agent (E12).
func TestHostHoldsTheListedAlone(t *testing.T) {
	t.Parallel()
	for name, dataplane := range backends(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dataplane)
			web := n.pod()
			former, _ := n.proxy()
			next, newer := n.proxy()
			before := n.dump()
			_, end := n.run()
			n.feed <- told(former, web)
			n.awaitStatus(web.UID, ambient.StatusEnabled)
			n.feed <- ambient.Change{Pods: []ambient.Pod{next}, Gone: []string{former.UID}}
			n.eventually("the newer proxy takes connections", n.holds(web, newer, captured))
			n.eventually("the host has the newer proxy's plan", func() bool { return n.differs(next) == nil })
			end()
			during := n.dump()
			for line := range strings.Lines(before) {
				if !strings.Contains(during, line) {
					t.Errorf("the agent has changed what was there: missing %s", line)
				}
			}
			if err := n.differs(next); err != nil {
				t.Error(err)
			}
			listed, err := dataplane.Observe(t.Context(), n.options.Host, owner)
			n.harm(err)
			host, plan, err := n.present(next)
			n.harm(err)
			n.harm(dataplane.Remove(t.Context(), n.options.Host, owner))
			if diff := cmp.Diff(before, n.dump()); diff != "" {
				t.Errorf("without what is listed (-before +after):\n%s", diff)
			}
			n.harm(dataplane.Apply(t.Context(), host, plan))
			for set, members := range listed.Owners {
				n.harm(dataplane.UpdateSet(t.Context(), n.options.Host, owner, set, interception.SetEdit{Add: members}))
			}
			if diff := cmp.Diff(during, n.dump()); diff != "" {
				t.Errorf("with what is listed alone (-during +after):\n%s", diff)
			}
		})
	}
}

// present returns the plan for the host with the proxy of the state file, and the handle that it
// needs.
func (n *node) present(proxy ambient.Pod) (host *interception.Netns, plan *interception.Plan, err error) {
	var state struct {
		Proxies []struct{ Proxy ambient.NodeProxy }
	}
	text, err := os.ReadFile(n.options.State)
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err == nil && len(state.Proxies) != 1 {
		err = fmt.Errorf("the state file has %d proxies, want one: %s", len(state.Proxies), text)
	}
	facts, failure := netfacts.Read(n.options.Host)
	if err = errors.Join(err, failure); err != nil {
		return nil, nil, err
	}
	of := state.Proxies[0].Proxy
	plan, err = ambient.NodePlan(of, n.options.Numbers, facts, owner)
	return n.options.Host.With(of.Namespace, n.places[proxy.UID].Netns), plan, err
}

// differs returns how what the owner has on the host differs from that plan; nil if it does not.
func (n *node) differs(proxy ambient.Pod) error {
	n.t.Helper()
	host, plan, err := n.present(proxy)
	if err != nil {
		return err
	}
	listed, err := n.options.Dataplane.Observe(n.t.Context(), host, owner)
	if drifts := interception.Diff(plan, listed); err == nil && len(drifts) > 0 {
		err = fmt.Errorf("what is listed is not the plan: %v", drifts)
	}
	return err
}

// TestHostIsNeitherPodNorProxy takes the host's namespace for the proxy's, and for a pod's, by its
// file and by an address. The agent refuses or ignores each, and the host stays as it was (E12).
func TestHostIsNeitherPodNorProxy(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	web := n.pod()
	good, proxy := n.proxy()
	bad := n.silentProxy(families...)
	bad.UID, bad.Name, bad.Addresses = "1c6b2f1e-9d3c-4f7a-8a51-ffffffffffff", "in-host", []netip.Addr{bad.Addresses[0].Prev()}
	process := filepath.Join(n.made.Roots().Proc, "999999")
	n.harm(os.MkdirAll(filepath.Join(process, "ns"), 0o700))
	n.harm(os.Symlink(filepath.Join(n.made.Roots().Proc, "1", "ns", "net"), filepath.Join(process, "ns", "net")))
	n.harm(os.WriteFile(filepath.Join(process, "cgroup"), []byte(fakenode.Cgroup(bad.UID, "cri-containerd")), 0o600))
	a, _ := n.run()
	n.feed <- told(good, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	stood := n.dump()
	n.feed <- ambient.Change{Pods: []ambient.Pod{bad}}
	n.hostErrorIs("mesh/in-host is ready: ")
	n.hostErrorIs("host's")
	host, err := os.Open(filepath.Join(n.made.Roots().Proc, "1", "ns", "net"))
	n.harm(err)
	pod := podnetns.Pod{Namespace: web.Namespace, Name: web.Name, UID: web.UID, IPs: web.Addresses, Containers: []string{"1"}}
	if decision, err := a.Enrol(t.Context(), pod, host); err != nil || !decision.Capture {
		t.Errorf("the pod with the host's file: %s, %v", decision, err)
	}
	claims := n.object(web.UID)
	claims.UID, claims.Name, claims.Addresses = "claims", "claims", bad.Addresses
	n.feed <- ambient.Change{Pods: []ambient.Pod{claims}}
	n.await("a pod with the host's address is refused", func() bool {
		return slices.ContainsFunc(a.Status("claims").Pods, func(p agentPod) bool { return errorHas(p.Err, "is an address of the node") })
	})
	if diff := cmp.Diff(stood, n.dump()); diff != "" {
		t.Errorf("the host (-before +after):\n%s", diff)
	}
	n.wantMembers(web)
	n.wantWay(web, proxy, captured)
}

// TestExclusionsAreReported has a pod ask for each kind of exclusion, which capture on the node
// cannot give: the pod's status names each, and the pod is captured. An annotation that asks for
// what all pods get is no warning (E26).
func TestExclusionsAreReported(t *testing.T) {
	t.Parallel()
	n := newNode(t, backends(t)["nftables"])
	n.options.DNS = true
	web := n.pod()
	proxyPod, proxy := n.proxy()
	a, _ := n.run()
	values := map[string]string{
		"traffic.istio.io/excludeInboundPorts": "8080", "traffic.istio.io/excludeOutboundPorts": "8080",
		"traffic.istio.io/excludeOutboundIPRanges": "0.0.0.0/0", "traffic.istio.io/excludeInterfaces": "eth0",
		"traffic.istio.io/includeInboundPorts": "80", "traffic.istio.io/includeOutboundPorts": "no port",
		"traffic.istio.io/includeOutboundIPRanges": "192.0.2.0/24", "istio.io/reroute-virtual-interfaces": "vm0",
		"ambient.istio.io/bypass-inbound-capture": "true", "ambient.istio.io/dns-capture": "false",
	}
	if len(values) != len(ambient.Istio().Fields) {
		t.Fatalf("%d annotations, and the vocabulary has %d", len(values), len(ambient.Istio().Fields))
	}
	web.Annotations = values
	n.feed <- told(proxyPod, web)
	n.awaitStatus(web.UID, ambient.StatusEnabled)
	n.wantWay(web, proxy, captured)
	warnings := func() (all []string) {
		for _, warning := range a.Status(web.UID).Pods[0].Warnings {
			all = append(all, warning.Source.Key)
			if !strings.Contains(warning.Reason, "it has no effect where the node's namespace captures the pods") {
				t.Errorf("%s", warning)
			}
		}
		return all
	}
	for key := range values {
		if all := warnings(); !slices.Contains(all, key) || len(all) != len(values) {
			t.Errorf("the warnings are about %q, want one about %s", all, key)
		}
	}
	web.Annotations = map[string]string{"ambient.istio.io/dns-capture": "true", "traffic.istio.io/excludeInboundPorts": "", "example.com/a": "b"}
	n.feed <- ambient.Change{Pods: []ambient.Pod{web}}
	n.await("no warning", func() bool { return len(a.Status(web.UID).Pods[0].Warnings) == 0 })
	n.await("the pod is as wanted", func() bool { return a.Status(web.UID).Pods[0].Step == "" })
	if err := a.Withdraw(t.Context(), func(agent.Pod) {}); err != nil {
		t.Error(err)
	}
}
