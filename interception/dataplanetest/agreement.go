// SPDX-License-Identifier: Apache-2.0

package dataplanetest

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
	"github.com/meshcni/meshcni/internal/sample"
)

// AgreementOptions say how much [Agree] tries. The zero value tries two thousand pairs, the same ones each time.
type AgreementOptions struct {
	// Seed is where the random redirects begin. A failure names the seed of its redirect: that, with Pairs of 1, repeats it alone.
	Seed uint64
	// Pairs is how many pairs of redirect and packet are tried at least; 2000 when zero.
	Pairs int
}

// packetsPerRedirect are sent through each redirect's pod, all at once.
const packetsPerRedirect = 25

// Agree tests that a dataplane does with real packets what package trace says: random redirects of all kinds are planned
// ([interception.PlanSidecar]) and applied to a pod each, and random packets, most of them at the edges of what the redirect is about, are
// sent through it (TCP and UDP, IPv4 and IPv6, out, in and within the pod, by the application, by the proxy and in its clients' name). What
// is compared is what [Pod.Compare] does. Its package needs a TestMain that calls [RunTests].
func Agree(t *testing.T, d interception.Dataplane, o AgreementOptions) {
	t.Helper()
	if o.Pairs == 0 {
		o.Pairs = 2000
	}
	kinds := counts{of: map[string]int{}}
	t.Run("redirects", func(t *testing.T) {
		for i := range (o.Pairs + packetsPerRedirect - 1) / packetsPerRedirect {
			seed := o.Seed + uint64(i)
			t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				t.Parallel()
				agreeOn(t, d, seed, &kinds)
			})
		}
	})
	kinds.expect(t)
	t.Logf("%d pairs of redirect and packet, by kind:%s", kinds.all(), kinds.String())
}

// expect fails the test when a large number of pairs lacks one of the kinds that everything is about.
func (c *counts) expect(t *testing.T) {
	t.Helper()
	if c.all() < 2000 {
		return
	}
	for _, mode := range []interception.Mode{interception.ModeRedirect, interception.ModeTProxy} {
		for _, family := range []interception.Family{interception.IPv4, interception.IPv6} {
			for _, kind := range []string{
				"tcp from outside, to the inbound port", "tcp from outside, to the application", "tcp from outside, refused",
				"tcp from the application, to the outbound port", "tcp from the application, sent", "tcp from the application, to the application",
				"tcp from the proxy, to the inbound port", "tcp from the proxy, sent", "tcp in a client's name, to the application",
				"udp from the application, to the resolver", "udp from the application, sent", "udp from the proxy, sent",
				"udp from outside, to the application",
			} {
				if name := fmt.Sprintf("%s %s %s", mode, family, kind); c.of[name] == 0 {
					t.Errorf("no pair of the kind %q: these packets test too little", name)
				}
			}
		}
	}
}

// agreeOn sends random packets through the pod of a random redirect.
func agreeOn(t *testing.T, d interception.Dataplane, seed uint64, kinds *counts) {
	t.Helper()
	choose := sample.Seeded(seed)
	from := sample.Pod{Redirect: sample.Redirect(choose), Addresses: []netip.Addr{
		netip.MustParseAddr("10.244.0.2"), netip.MustParseAddr("fd00:10:244::2"),
		netip.MustParseAddr("10.244.7.7"), netip.MustParseAddr("fd00:10:244:7::7"),
	}[:sample.Pick(choose, 2, 4)]}
	plan, err := interception.PlanSidecar(from.Redirect, interception.Facts{IPv6: choose(5) > 0}, "random-mesh")
	if err != nil {
		t.Fatal(err)
	}
	pod := sidecarPod(t, d, from, plan)
	for address := range interception.ObjectsOf[interception.Address](plan) {
		from.Loopback = append(from.Loopback, address.Prefix.Addr())
	}
	world, err := pod.World(plan)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range packetsPerRedirect {
		packet := from.Packet(choose)
		group.Go(func() {
			c, err := pod.Compare(t.Context(), world, packet)
			switch {
			case errors.Is(err, ErrNeedsSecondUID):
				t.Skip("needs a second uid: give this user subordinate ids in /etc/subuid and /etc/subgid, and install newuidmap (package uidmap)")
			case err != nil:
				t.Errorf("seed %d: %v", seed, err)
			case c.Disagreement != "":
				t.Errorf("seed %d: %s", seed, c.Report())
			}
			if err == nil {
				kinds.add(kindOf(from.Redirect, c))
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.Logf("seed %d: %s", seed, plan)
	}
}

// sidecarPod is a pod with the plan, where application and proxy listen.
func sidecarPod(t *testing.T, d interception.Dataplane, from sample.Pod, plan *interception.Plan) *Pod {
	t.Helper()
	o := PodOptions{Addresses: from.Addresses, Ports: []uint16{53, 80, 8080}}
	proxy := from.Redirect.Proxy
	for _, port := range []interception.Port{proxy.OutboundPort, proxy.InboundPort, proxy.TunnelPort, from.Redirect.DNS.Port} {
		if port != 0 {
			o.ProxyPorts = append(o.ProxyPorts, uint16(port))
		}
	}
	uid, gid := from.Owner()
	o.ProxyUID, o.ProxyGID = uint32(uid), uint32(gid)
	pod := NewPod(t, o)
	if err := pod.Apply(t.Context(), d, plan); err != nil {
		t.Fatal(err)
	}
	return pod
}

// kindOf is the kind that a comparison counts for.
func kindOf(r interception.Redirect, c Comparison) string {
	first := c.Expected[0]
	way := "from the application"
	uid, gid := interception.UID(c.Probe.UID), interception.GID(c.Probe.GID)
	switch _, arrival := first.Packet.From.(trace.Arrival); {
	case arrival:
		way = "from outside"
	case c.Probe.Transparent:
		way = "in a client's name"
	case r.Proxy.UIDs.Contains(uid) || r.Proxy.GIDs.Contains(gid):
		way = "from the proxy"
	}
	end := first.Verdict.String()
	if first.Verdict == trace.Delivered {
		switch first.Listener.Port {
		case r.Proxy.OutboundPort:
			end = "to the outbound port"
		case r.Proxy.InboundPort:
			end = "to the inbound port"
		case r.DNS.Port:
			end = "to the resolver"
		default:
			end = "to the application"
		}
	}
	family := interception.FamilyOf(first.Packet.Dst.Addr())
	return fmt.Sprintf("%s %s %s %s, %s", r.Mode, family, first.Packet.Protocol, way, end)
}

// counts count kinds, for several goroutines.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) add(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[kind]++
}

func (c *counts) all() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for _, n := range c.of {
		sum += n
	}
	return sum
}

// String has a line for each kind.
func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := ""
	for _, kind := range slices.Sorted(maps.Keys(c.of)) {
		text += fmt.Sprintf("\n%6d %s", c.of[kind], kind)
	}
	return text
}
