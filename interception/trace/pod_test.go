// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"net/netip"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// The users of the tests.
const (
	application interception.UID = 1000
	proxy       interception.UID = 1337
)

// build returns a plan, or fails the test.
func build(t testing.TB, fill func(*interception.Builder)) *interception.Plan {
	t.Helper()
	return buildFor(t, "test-plan", fill)
}

func buildFor(t testing.TB, owner interception.Owner, fill func(*interception.Builder)) *interception.Plan {
	t.Helper()
	plan, err := interception.Build(owner, fill)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// pod returns the default pod with plans, in the order of their evaluation, an application on port
// 8080 and a proxy on 15001 and 15006.
func pod(plans ...*interception.Plan) trace.World {
	world := trace.Sidecar(nil, trace.SidecarOptions{Listeners: []trace.Listener{
		{Name: "application", Protocol: interception.ProtocolTCP, Port: 8080},
		{Name: "outbound", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15001},
		{Name: "inbound", Proxy: true, Protocol: interception.ProtocolTCP, Port: 15006},
	}})
	world.Namespaces[0].Plans = plans
	return world
}

// connect returns the first packet of a TCP connection from a process of the user.
func connect(uid interception.UID, dst string) trace.Packet {
	return trace.Packet{From: trace.Socket{UID: uid, GID: interception.GID(uid)}, Protocol: interception.ProtocolTCP, Dst: netip.MustParseAddrPort(dst)}
}

// bound returns the packet, from a socket that was bound to src.
func bound(packet trace.Packet, src string) trace.Packet {
	packet.Src = netip.AddrPortFrom(netip.MustParseAddr(src), 0)
	return packet
}

// datagram returns the packet as UDP.
func datagram(packet trace.Packet) trace.Packet {
	packet.Protocol = interception.ProtocolUDP
	return packet
}

// arriving returns the first packet of a TCP connection that comes in by eth0.
func arriving(src, dst string) trace.Packet {
	return trace.Packet{
		From: trace.Arrival{Link: "eth0"}, Protocol: interception.ProtocolTCP,
		Src: netip.MustParseAddrPort(src), Dst: netip.MustParseAddrPort(dst),
	}
}

// traced returns the outcome, or fails the test.
func traced(t testing.TB, world trace.World, packet trace.Packet) trace.Outcome {
	t.Helper()
	outcome, err := trace.Trace(world, packet)
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

// expect fails the test unless the outcome's line is want.
func expect(t *testing.T, world trace.World, packet trace.Packet, want string) {
	t.Helper()
	if outcome := traced(t, world, packet); outcome.String() != want {
		t.Errorf("%s\n got: %s\nwant: %s\n%s", packet, outcome, want, outcome.Report())
	}
}

func addresses(list ...string) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(list))
	for i, text := range list {
		prefixes[i] = netip.MustParsePrefix(text)
	}
	return prefixes
}

func set(list ...string) interception.PrefixSet { return interception.Prefixes(addresses(list...)...) }
