// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception/trace"
)

func TestInvalidPacket(t *testing.T) {
	t.Parallel()
	valid := connect(application, "192.0.2.1:80")
	change := func(p trace.Packet, f func(*trace.Packet)) trace.Packet { f(&p); return p }
	from := func(origin trace.Origin) trace.Packet {
		return change(arriving("10.244.0.9:40000", "10.244.0.2:80"), func(p *trace.Packet) { p.From = origin })
	}
	for _, c := range []struct {
		packet trace.Packet
		want   string
	}{
		{trace.Packet{}, "it starts nowhere"},
		{from(trace.Socket{Namespace: "node"}), `the world has no namespace "node"`},
		{from(trace.Arrival{Namespace: "node", Link: "eth0"}), `the world has no namespace "node"`},
		{from(trace.Arrival{Link: "eth1"}), `nothing arrives by link "eth1"`},
		{from(trace.Arrival{Link: "lo"}), `nothing arrives by link "lo"`},
		{from(trace.Arrival{}), `nothing arrives by link ""`},
		{change(valid, func(p *trace.Packet) { p.Protocol = 0 }), "protocol any is not traced"},
		{change(valid, func(p *trace.Packet) { p.Protocol = 2 }), "protocol 2 is not traced"},
		{change(valid, func(p *trace.Packet) { p.Protocol = trace.ICMP }), "an echo request has port 0 in its destination"},
		{from(trace.Tunnel{Link: "eth0"}), "a tunnel sends what a namespace sends by it"},
		{connect(application, "192.0.2.1:0"), "the destination needs a port"},
		{change(valid, func(p *trace.Packet) { p.Dst = netip.AddrPortFrom(netip.Addr{}, 80) }), "the destination has no address"},
		{connect(application, "0.0.0.0:80"), "name the loopback address"},
		{connect(application, "[::]:80"), "name the loopback address"},
		{connect(application, "255.255.255.255:80"), "the destination is a broadcast address"},
		{connect(application, "10.244.0.255:80"), "the destination is a broadcast address"},
		{connect(application, "127.255.255.255:80"), "the destination is a broadcast address"},
		{connect(application, "224.0.0.1:80"), "the destination is not a unicast address"},
		{connect(application, "[ff02::1]:80"), "the destination is not a unicast address"},
		{connect(application, "[::ffff:192.0.2.1]:80"), "the destination is an IPv4 address in IPv6 form"},
		{connect(application, "[fe80::1%eth0]:80"), "the destination has a zone"},
		{bound(valid, "10.244.0.9"), "no socket can be bound to the source"},
		{bound(valid, "::1"), "source and destination are of different families"},
		{bound(valid, "0.0.0.0"), "the source is not a unicast address"},
		{bound(valid, "::ffff:10.244.0.2"), "the source is an IPv4 address in IPv6 form"},
		{arriving("[fd00::1]:40000", "10.244.0.2:80"), "source and destination are of different families"},
		{arriving("224.0.0.1:40000", "10.244.0.2:80"), "the source is not a unicast address"},
		{arriving("[fe80::1%eth0]:40000", "[fe80::2]:80"), "the source has a zone"},
		{change(arriving("10.244.0.9:1", "10.244.0.2:80"), func(p *trace.Packet) { p.Src = netip.AddrPort{} }), "the source has no address"},
	} {
		outcome, err := trace.Trace(pod(), c.packet)
		if !errors.Is(err, trace.ErrPacket) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v, want ErrPacket with %q", c.packet, outcome, err, c.want)
		}
	}
}

func TestSourcePort(t *testing.T) {
	t.Parallel()
	packet := connect(application, "192.0.2.1:80")
	if got := traced(t, pod(), packet).Packet.Src.Port(); got != trace.EphemeralPort {
		t.Errorf("without a port: got %d, want %d", got, trace.EphemeralPort)
	}
	packet.Src = netip.AddrPortFrom(netip.Addr{}, 7)
	if got := traced(t, pod(), packet).Packet.Src.String(); got != "10.244.0.2:7" {
		t.Errorf("with port 7: got %s", got)
	}
}
