// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

func TestInvalidWorld(t *testing.T) {
	t.Parallel()
	tcp := func(name, address string, port interception.Port) trace.Listener {
		l := trace.Listener{Name: name, Protocol: interception.ProtocolTCP, Port: port}
		if address != "" {
			l.Address = netip.MustParseAddr(address)
		}
		return l
	}
	for want, change := range map[string]func(*trace.Namespace){
		"it has no link lo":                       func(n *trace.Namespace) { n.Links = n.Links[1:] },
		`invalid name: interface ""`:              func(n *trace.Namespace) { n.Links[1].Name = "" },
		"two links are called eth0":               func(n *trace.Namespace) { n.Links = append(n.Links, n.Links[1]) },
		"address 0 of link eth0 (invalid Prefix)": func(n *trace.Namespace) { n.Links[1].Addresses = make([]netip.Prefix, 1) },
		"address 1 of link eth0 (::ffff:10.0.0.1/128)": func(n *trace.Namespace) {
			n.Links[1].Addresses = addresses("10.0.0.2/8", "::ffff:10.0.0.1/128")
		},
		"address 224.0.0.1/32 of link eth0 is not unicast": func(n *trace.Namespace) { n.Links[1].Addresses = addresses("224.0.0.1/32") },
		"address ::/0 of link eth0 is not unicast":         func(n *trace.Namespace) { n.Links[1].Addresses = addresses("::/0") },
		`listener "a": it has protocol any`:                func(n *trace.Namespace) { n.Listeners = []trace.Listener{{Name: "a", Port: 1}} },
		`listener "a": it has port 0`:                      func(n *trace.Namespace) { n.Listeners = []trace.Listener{tcp("a", "", 0)} },
		`listener "a": no link has its address 10.9.9.9`:   func(n *trace.Namespace) { n.Listeners = []trace.Listener{tcp("a", "10.9.9.9", 1)} },
		`listener "b": another one is bound to the same address and port 80`: func(n *trace.Namespace) {
			n.Listeners = []trace.Listener{tcp("a", "0.0.0.0", 80), tcp("b", "0.0.0.0", 80)}
		},
		"plan 0 is nil": func(n *trace.Namespace) { n.Plans = make([]*interception.Plan, 1) },
		"plan 0, of x":  func(n *trace.Namespace) { n.Plans = []*interception.Plan{{Owner: "x"}} },
	} {
		world := pod()
		change(&world.Namespaces[0])
		_, err := trace.Trace(world, connect(application, "192.0.2.1:80"))
		if !errors.Is(err, trace.ErrWorld) || !strings.Contains(err.Error(), `namespace "pod": `+want) {
			t.Errorf("got %v, want ErrWorld with %q", err, want)
		}
	}
}

func TestInvalidNamespaces(t *testing.T) {
	t.Parallel()
	one := pod().Namespaces[0]
	for want, world := range map[string]trace.World{
		"it has no namespace":             {},
		`two namespaces are called "pod"`: {Namespaces: []trace.Namespace{one, one}},
	} {
		if _, err := trace.Trace(world, connect(application, "192.0.2.1:80")); !errors.Is(err, trace.ErrWorld) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrWorld with %q", err, want)
		}
	}
}

func TestInvalidPlan(t *testing.T) {
	t.Parallel()
	circle := interception.Table{
		Kind:    interception.NAT,
		Entries: []interception.Entry{{ID: "entry", Hook: interception.Output, Chain: "chain", Why: "why"}},
		Chains: []interception.Chain{{Name: "chain", Rules: []interception.Rule{
			{ID: "rule", Action: interception.Jump{Chain: "chain"}, Why: "why"},
		}}},
	}
	plan := &interception.Plan{Owner: "test-plan", Objects: []interception.Object{circle}}
	_, err := trace.Trace(pod(plan), connect(application, "192.0.2.1:80"))
	if !errors.Is(err, trace.ErrWorld) || !errors.Is(err, interception.ErrPlan) {
		t.Errorf("got %v, want ErrWorld and interception.ErrPlan", err)
	}
}

// A packet starts in the namespace that it names, and stays there.
func TestSeveralNamespaces(t *testing.T) {
	t.Parallel()
	first, second := pod(build(t, capture)), pod()
	second.Namespaces[0].Name = "other"
	world := trace.World{Namespaces: append(first.Namespaces, second.Namespaces...)}
	packet := connect(application, "192.0.2.1:80")
	for name, want := range map[string]trace.Verdict{"": trace.Delivered, "pod": trace.Delivered, "other": trace.Sent} {
		packet.From = trace.Socket{Namespace: name, UID: application}
		if got := traced(t, world, packet); got.Verdict != want || got.Namespace != map[bool]string{true: "other", false: "pod"}[name == "other"] {
			t.Errorf("from %q: %s in %q, want %s", name, got, got.Namespace, want)
		}
	}
}

// The kernel prefers the socket bound to the address to one bound to all of its family, and that to
// one bound to all.
func TestChoiceOfListener(t *testing.T) {
	t.Parallel()
	world := trace.Sidecar(nil, trace.SidecarOptions{Listeners: []trace.Listener{
		{Name: "udp", Protocol: interception.ProtocolUDP, Port: 80},
		{Name: "all", Protocol: interception.ProtocolTCP, Port: 80},
		{Name: "all of v4", Protocol: interception.ProtocolTCP, Port: 80, Address: netip.IPv4Unspecified()},
		{Name: "one", Protocol: interception.ProtocolTCP, Port: 80, Address: netip.MustParseAddr("127.0.0.6")},
		{Name: "all of v6", Protocol: interception.ProtocolTCP, Port: 443, Address: netip.IPv6Unspecified()},
	}})
	for _, c := range []struct {
		packet trace.Packet
		want   string
	}{
		{connect(application, "127.0.0.6:80"), "one"},
		{connect(application, "127.0.0.1:80"), "all of v4"},
		{connect(application, "[::1]:80"), "all"},
		{datagram(connect(application, "127.0.0.6:80")), "udp"},
		{connect(application, "[::1]:443"), "all of v6"},
		{connect(application, "127.0.0.1:443"), ""},
	} {
		if got := traced(t, world, c.packet).Listener.Name; got != c.want {
			t.Errorf("%s: got %q, want %q", c.packet, got, c.want)
		}
	}
}
