// SPDX-License-Identifier: Apache-2.0

package ambient_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/testing/sandboxtest"
)

// hosts returns the dataplanes with live sets.
func hosts(t testing.TB) map[string]hostBackend {
	t.Helper()
	all := map[string]hostBackend{}
	for name, backend := range backends(t) {
		host, editsSets := backend.(hostBackend)
		if !editsSets {
			t.Fatalf("%s edits no live sets", name)
		}
		all[name] = host
	}
	return all
}

// ways returns a proxy of both families by each way.
func ways() map[ambient.Way]ambient.NodeProxy {
	all := map[ambient.Way]ambient.NodeProxy{}
	for _, way := range []ambient.Way{ambient.WayVeth, ambient.WayVXLAN} {
		all[way] = ambient.NodeProxy{
			Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.14"), netip.MustParseAddr("fd00:10:244:1::e")},
			Way:       way, Namespace: "proxy", Node: netip.MustParseAddr("10.244.1.13"), DNS: true,
		}
	}
	return all
}

func bothFamilies() interception.Facts {
	return interception.Facts{IPv6: true, LoopbackIPv6: true}
}

// nodePlans returns the plans for the node and for its proxy.
func nodePlans(t *testing.T, proxy ambient.NodeProxy) (node, ofProxy *interception.Plan) {
	t.Helper()
	node, err := ambient.NodePlan(proxy, ambient.IstioNodeNumbers(), bothFamilies(), "test-ambient")
	if err != nil {
		t.Fatal(err)
	}
	if proxy.IsZero() {
		return node, nil
	}
	if ofProxy, err = ambient.ProxyPlan(proxy, ambient.IstioNodeNumbers(), bothFamilies(), "test-ambient"); err != nil {
		t.Fatal(err)
	}
	return node, ofProxy
}

// install applies a plan, and expects no drift.
func install(t testing.TB, backend interception.Dataplane, ns *interception.Netns, plan *interception.Plan) {
	t.Helper()
	if err := backend.Apply(t.Context(), ns, plan); err != nil {
		t.Fatal(err)
	}
	state, err := backend.Observe(t.Context(), ns, plan.Owner)
	if err != nil {
		t.Fatal(err)
	}
	if drifts := interception.Diff(plan, state); drifts != nil {
		t.Errorf("after Apply: %v", drifts)
	}
}

// contents lists all that the plans can change in a namespace.
func contents(t *testing.T, pod *sandboxtest.Pod) string {
	t.Helper()
	return listed(t, pod) + pod.Network(t)
}

// TestNodePlansComeAndGo applies both plans with a member in each set, again, and removes them, in
// either order.
func TestNodePlansComeAndGo(t *testing.T) {
	t.Parallel()
	for name, backend := range hosts(t) {
		for way, proxy := range ways() {
			for order, nodeFirst := range map[string]bool{"node first": true, "proxy first": false} {
				t.Run(name+" "+way.String()+" "+order, func(t *testing.T) {
					t.Parallel()
					comeAndGo(t, backend, proxy, nodeFirst)
				})
			}
		}
	}
}

func comeAndGo(t *testing.T, backend hostBackend, proxy ambient.NodeProxy, nodeFirst bool) {
	t.Helper()
	node, pod := sandboxtest.NewPod(t), sandboxtest.NewPod(t)
	both := func() [2]string { return [2]string{contents(t, node), contents(t, pod)} }
	before := both()
	handle := node.With("proxy", pod.Netns)
	ofNode, ofProxy := nodePlans(t, proxy)
	install(t, backend, handle, ofNode)
	install(t, backend, pod.Netns, ofProxy)
	for _, address := range []string{"10.244.1.2", "fd00:10:244:1::2"} {
		enter(t, backend, handle, ofNode.Owner, netip.MustParseAddr(address))
	}
	once := both()
	install(t, backend, handle, ofNode)
	install(t, backend, pod.Netns, ofProxy)
	if diff := cmp.Diff(once, both()); diff != "" {
		t.Errorf("applied twice (-once +twice):\n%s", diff)
	}
	state, err := backend.Observe(t.Context(), handle, ofNode.Owner)
	if err != nil || len(state.Owners) != 2 {
		t.Errorf("members after the second Apply: %v, %v, want one in each set", state.Owners, err)
	}
	handles := []*interception.Netns{pod.Netns, handle}
	if nodeFirst {
		slices.Reverse(handles)
	}
	for _, ns := range slices.Concat(handles, handles) { // the second time nothing is there
		if err := backend.Remove(t.Context(), ns, ofNode.Owner); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, both()); diff != "" {
		t.Errorf("after Remove:\n%s", diff)
	}
}

// enter makes an address a member of its family's set.
func enter(t *testing.T, backend hostBackend, ns *interception.Netns, owner interception.Owner, address netip.Addr) {
	t.Helper()
	edit := interception.SetEdit{Add: map[netip.Addr]string{address: "7c1e"}}
	if err := backend.UpdateSet(t.Context(), ns, owner, ambient.MeshedSet(interception.FamilyOf(address)), edit); err != nil {
		t.Fatal(err)
	}
}
