// SPDX-License-Identifier: Apache-2.0

package nftables_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/nftables"
	"github.com/meshcni/meshcni/internal/testing/kerneltest"
)

// hostWork is what a process does in the host's namespace until it is killed.
type hostWork struct {
	Plan   *interception.Plan
	Proxy  string // the path of the namespace of the proxy's pod
	Remove bool   // rather than Apply
}

func (w hostWork) do(dp *nftables.Dataplane, host *interception.Netns) error {
	proxy, err := interception.OpenNetns(w.Proxy, interception.NetnsOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = proxy.Close() }()
	if w.Remove {
		return dp.Remove(context.Background(), host, w.Plan.Owner)
	}
	return dp.Apply(context.Background(), host.With("proxy", proxy), w.Plan)
}

// workOnHost has a process do the work until it kills itself before a call.
func workOnHost(t testing.TB, host *pod, work hostWork, end int) {
	t.Helper()
	text, err := json.Marshal(work)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "work.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if !newVictim(t, host, hostArgument, file, end).killed(t, -1) {
		t.Errorf("call %d: the process was not killed", end)
	}
}

// TestKilledOnTheHost kills a process before each call to the kernel that changes anything: while
// it applies ambient mode's plan for a node, with its rules, sets, links, addresses, routes, policy
// rules and sysctls, and while it removes that plan. The next Remove leaves the host and the
// proxy's pod as they were.
func TestKilledOnTheHost(t *testing.T) {
	t.Parallel()
	for _, way := range []ambient.Way{ambient.WayVeth, ambient.WayVXLAN} {
		for _, remove := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v remove=%t", way, remove), func(t *testing.T) {
				t.Parallel()
				killOnTheHost(t, way, remove)
			})
		}
	}
}

func killOnTheHost(t *testing.T, way ambient.Way, remove bool) {
	t.Helper()
	plan, err := ambient.NodePlan(ambient.NodeProxy{
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.14"), netip.MustParseAddr("fd00:10:244:1::e")},
		Way:       way, Namespace: "proxy", Node: netip.MustParseAddr("10.244.1.13"), DNS: true,
	}, ambient.IstioNodeNumbers(), interception.Facts{IPv6: true, LoopbackIPv6: true}, "mesh-test")
	if err != nil {
		t.Fatal(err)
	}
	host, proxy := newForeignPod(t), newPod(t)
	listing := func() string {
		return host.Network(t) + host.ruleset(t) + "the proxy's pod\n" + proxy.Network(t) + proxy.ruleset(t)
	}
	apply := func(dp *nftables.Dataplane) {
		if err := dp.Apply(t.Context(), host.With("proxy", proxy.Netns), plan); err != nil {
			t.Fatal(err)
		}
	}
	removed := func(dp *nftables.Dataplane) {
		if err := dp.Remove(t.Context(), host.Netns, plan.Owner); err != nil {
			t.Fatal(err)
		}
	}
	before := listing()
	var applied, taken kerneltest.Fault
	apply(dataplane(t).Through(applied.Open))
	removed(dataplane(t).Through(taken.Open))
	calls := applied.Calls()
	if remove {
		calls = taken.Calls()
	}
	kills := 0
	for end, call := range calls {
		if !call.Changes() {
			continue
		}
		kills++
		if remove {
			apply(dataplane(t))
		}
		workOnHost(t, host, hostWork{Plan: plan, Proxy: proxy.Namespace.Path(), Remove: remove}, end)
		removed(dataplane(t))
		if diff := cmp.Diff(before, listing()); diff != "" {
			t.Fatalf("killed before call %d (%s), after Remove (-before +after):\n%s", end, call.What, diff)
		}
	}
	if kills < 5 {
		t.Errorf("%d calls change anything", kills)
	}
	t.Logf("%d of %d calls change anything", kills, len(calls))
}
