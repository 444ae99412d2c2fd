// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

// dnsPod returns a pod with Istio's plan and DNS capture, with or without zones.
func dnsPod(t *testing.T, zones bool) trace.World {
	t.Helper()
	redirect, _, err := sidecar.Istio().Parse(interception.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	redirect.DNS.Port = 15053
	plan := planned(t, redirect, interception.Facts{IPv6: true})
	if !zones {
		kept := &interception.Plan{Owner: plan.Owner}
		for _, object := range plan.Objects {
			if table, ok := object.(interception.Table); !ok || table.Kind != interception.Raw {
				kept.Objects = append(kept.Objects, object)
			}
		}
		plan = kept
	}
	return trace.Sidecar(plan, trace.SidecarOptions{})
}

// query returns a query to a resolver by UDP, from port 5353.
func query(socket trace.Socket) trace.Packet {
	return trace.Packet{
		From: socket, Protocol: interception.ProtocolUDP,
		Src: netip.AddrPortFrom(netip.Addr{}, 5353), Dst: netip.MustParseAddrPort("10.96.0.10:53"),
	}
}

func TestQueries(t *testing.T) {
	t.Parallel()
	world := dnsPod(t, true)
	const free = "outbound.proxy.uid: connections of the proxy itself are never captured"
	asked := exchange(t, world, query(ofApplication()), ofProxy(), [3]string{
		"delivered to proxy-15053 (proxy) at 127.0.0.1:15053, originally 10.96.0.10:53; dns.udp: queries go to the proxy",
		"delivered to uid 1000 gid 1000 at 10.244.0.2:5353, from 10.96.0.10:53; no rule decided",
		"delivered to proxy-15053 (proxy) at 127.0.0.1:15053, originally 10.96.0.10:53; no rule decided",
	})
	forwarded := exchange(t, world, query(ofProxy()), trace.Arrival{Link: "eth0"}, [3]string{
		"sent by eth0 to 10.96.0.10:53; " + free,
		"delivered to uid 1337 gid 1337 at 10.244.0.2:5353, from 10.96.0.10:53; no rule decided",
		"sent by eth0 to 10.96.0.10:53; no rule decided",
	})
	if asked.Zone != 2 || forwarded.Zone != 1 {
		t.Errorf("the application's query is in zone %d, the proxy's in zone %d", asked.Zone, forwarded.Zone)
	}
	expect(t, world, connect(application, "10.96.0.10:53"),
		"delivered to proxy-15053 (proxy) at 127.0.0.1:15053, originally 10.96.0.10:53; dns.tcp: queries go to the proxy")
}

// The proxy may query the same resolver from the same port as the application: their zones keep the
// queries apart. Without zones the proxy would query itself.
func TestQueriesFromTheSamePort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zones bool
		want  string
	}{
		{true, "sent by eth0 to 10.96.0.10:53; outbound.proxy.uid: connections of the proxy itself are never captured"},
		{false, "delivered to proxy-15053 (proxy) at 127.0.0.1:15053, originally 10.96.0.10:53; no rule decided"},
	} {
		world := dnsPod(t, c.zones)
		packet := query(ofProxy())
		packet.Flow = traced(t, world, query(ofApplication())).Flow
		expect(t, world, packet, c.want)
	}
}
