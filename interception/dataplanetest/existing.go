// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
)

// olderConnection is a connection that is older than the plan, and whether it survives
// ExistingCapture.
type olderConnection struct {
	name string
	// to4 and to6 are the probe's destinations in both families.
	to4, to6 string
	probe    Probe
	// lives lists the sides that keep the connection alive if they speak first after the plan.
	lives map[Side]bool
}

// olderConnections returns all kinds that differ. Connection tracking takes the first packet that
// it sees for the opening of a connection by the speaker: a connection survives if a new one,
// opened by the first speaker, would not be captured.
func olderConnections() []olderConnection {
	both := map[Side]bool{Opener: true, Taker: true}
	opener := map[Side]bool{Opener: true}
	return []olderConnection{
		{"from outside", "10.244.1.10:8080", "[fd00:10:244:1::a]:8080", Probe{From: Elsewhere}, nil},
		{"from outside to an excluded port", "10.244.1.10:80", "[fd00:10:244:1::a]:80", Probe{From: Elsewhere}, opener},
		{"to the outside", "198.51.100.7:443", "[2001:db8:7::7]:443", Probe{UID: 1000}, nil},
		{"to an excluded destination", "203.0.113.7:443", "[2001:db8:9::7]:443", Probe{UID: 1000}, opener},
		{"to an excluded port", "198.51.100.7:5432", "[2001:db8:7::7]:5432", Probe{UID: 1000}, opener},
		{"by the proxy", "198.51.100.7:443", "[2001:db8:7::7]:443", Probe{UID: 1337, GID: 1337}, opener},
		{"within the pod", "127.0.0.1:8080", "[::1]:8080", Probe{UID: 1000}, both},
		{"to the pod's own address", "10.244.1.10:8080", "[fd00:10:244:1::a]:8080", Probe{UID: 1000}, both},
	}
}

// existingRedirect captures everything that the older connections are not excluded from.
func existingRedirect(mode sidecar.Mode, existing sidecar.Existing) sidecar.Redirect {
	return sidecar.Redirect{
		Mode:     mode,
		Existing: existing,
		TProxy:   sidecar.TProxy{Mark: 1337, SelfMark: 1338, Table: 133, Priority: 1337},
		Proxy:    sidecar.Proxy{UIDs: interception.UIDs(1337), OutboundPort: 15001, InboundPort: 15006},
		Inbound:  sidecar.Inbound{Include: interception.AllPorts(), Exclude: interception.Ports(80)},
		Outbound: sidecar.Outbound{
			Include:      interception.AllPrefixes(),
			Exclude:      interception.Prefixes(netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:9::/48")),
			ExcludePorts: interception.Ports(5432),
			Loopback:     interception.Prefixes(netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")),
		},
	}
}

// Existing tests what happens to the connections of a living pod, which were not tracked so far,
// when a dataplane applies a plan. Under [sidecar.ExistingSpare] all survive, in both modes and
// both families, excluded or not, whichever side opened them and whichever speaks first. Under
// [sidecar.ExistingCapture] only those that its doc names survive.
func Existing(t *testing.T, d interception.Dataplane) {
	t.Helper()
	inLivingPods(t, func(t *testing.T, r sidecar.Redirect, pod *Pod, plan *interception.Plan) {
		t.Helper()
		world, err := pod.World(plan)
		if err != nil {
			t.Fatal(err)
		}
		all := openOlder(t, pod)
		if err := pod.Apply(t.Context(), d, plan); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for _, one := range all {
			group.Go(func() {
				c, err := pod.CompareLiving(t.Context(), world, one.Connection, one.first)
				wanted := r.Existing == sidecar.ExistingSpare || one.lives[one.first]
				switch lives := c.Observed.Verdict == Accepted; {
				case err != nil || c.Disagreement != "":
					t.Errorf("connection %s, %s first: %v, %s", one.name, one.first, err, c.Report())
				case lives != wanted:
					t.Errorf("connection %s, %s first: it lives on: %t, want %t\n%s", one.name, one.first, lives, wanted, c.Report())
				}
			})
		}
		group.Wait()
	})
}

// inLivingPods runs a subtest for each mode and [sidecar.Existing], with a pod of its own and the
// plan for it, which is not applied yet.
func inLivingPods(t *testing.T, test func(*testing.T, sidecar.Redirect, *Pod, *interception.Plan)) {
	t.Helper()
	for _, mode := range []sidecar.Mode{sidecar.ModeRedirect, sidecar.ModeTProxy} {
		for _, existing := range []sidecar.Existing{sidecar.ExistingSpare, sidecar.ExistingCapture} {
			t.Run(fmt.Sprintf("%s spare %t", mode, existing == sidecar.ExistingSpare), func(t *testing.T) {
				t.Parallel()
				r := existingRedirect(mode, existing)
				plan, err := sidecar.Plan(r, interception.Facts{IPv6: true}, "living-pod")
				if err != nil {
					t.Fatal(err)
				}
				pod := NewPod(t, PodOptions{Ports: []uint16{80, 8080}, ProxyPorts: []uint16{15001, 15006}, ProxyUID: 1337, ProxyGID: 1337})
				test(t, r, pod, plan)
			})
		}
	}
}

// existingConnection is an olderConnection in a pod.
type existingConnection struct {
	*Connection
	olderConnection
	first Side
}

// openOlder opens two connections of each kind and family: in one the opener will speak first, in
// one the taker.
func openOlder(t *testing.T, pod *Pod) []existingConnection {
	t.Helper()
	var all []existingConnection
	for _, older := range olderConnections() {
		for _, to := range []string{older.to4, older.to6, older.to4, older.to6} {
			older.probe.Dst = netip.MustParseAddrPort(to)
			all = append(all, existingConnection{connect(t, pod, older.probe), older, Side(len(all) / 2 % 2)})
		}
	}
	return all
}
