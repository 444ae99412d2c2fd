// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"testing"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/sidecar"
	"github.com/meshcni/meshcni/interception/trace"
)

// The sockets of the tests. inItsName is the proxy's when it connects with a client's address.
func inItsName() trace.Socket {
	return trace.Socket{UID: proxy, GID: interception.GID(proxy), Mark: 1337, Transparent: true}
}

func ofProxy() trace.Socket { return trace.Socket{UID: proxy, GID: interception.GID(proxy)} }
func ofApplication() trace.Socket {
	return trace.Socket{UID: application, GID: interception.GID(application)}
}

// tproxyPod returns a pod with Istio's plan in TPROXY mode, an application on port 8080, and the
// transparent proxy.
func tproxyPod(t *testing.T, changes ...func(*sidecar.Redirect)) trace.World {
	t.Helper()
	redirect, _, err := sidecar.Istio().Parse(interception.Pod{Annotations: map[string]string{
		"sidecar.istio.io/interceptionMode": "TPROXY",
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(&redirect)
	}
	return trace.Sidecar(planned(t, redirect, interception.Facts{IPv6: true}), trace.SidecarOptions{Listeners: []trace.Listener{
		{Name: "application", Protocol: interception.ProtocolTCP, Port: 8080},
	}})
}

// from returns the packet of a socket that is bound to src.
func from(socket trace.Socket, src string, packet trace.Packet) trace.Packet {
	packet.From = socket
	return bound(packet, src)
}

func TestTProxy(t *testing.T) {
	t.Parallel()
	world := tproxyPod(t)
	for name, c := range map[string]struct {
		packet trace.Packet
		want   string
	}{
		"inbound v4": {
			arriving("10.244.0.9:40000", "10.244.0.2:8080"),
			"delivered to proxy-15006 (proxy) at :15006, as it is, for 10.244.0.2:8080; tproxy.capture.v4: inbound connections go to the proxy",
		},
		"inbound v6": {
			arriving("[fd00:10:244::9]:40000", "[fd00:10:244::2]:8080"),
			"delivered to proxy-15006 (proxy) at :15006, as it is, for [fd00:10:244::2]:8080; tproxy.capture.v6: inbound connections go to the proxy",
		},
		"inbound to an address that is not the pod's": {
			arriving("10.244.0.9:40000", "10.50.0.1:80"),
			"delivered to proxy-15006 (proxy) at :15006, as it is, for 10.50.0.1:80; tproxy.capture.v4: inbound connections go to the proxy",
		},
		"inbound to an excluded port": {
			arriving("10.244.0.9:40000", "10.244.0.2:15021"),
			"refused: nothing listens at 10.244.0.2:15021; tproxy.exclude.ports: excluded inbound ports",
		},
		"inbound udp": {
			datagram(arriving("10.244.0.9:40000", "10.244.0.2:53")), "refused: nothing listens at 10.244.0.2:53; no rule decided",
		},
		"the proxy to the application in its client's name": {
			from(inItsName(), "10.244.0.9", connect(proxy, "10.244.0.2:8080")),
			"delivered to application at 10.244.0.2:8080; outbound.proxy.uid: connections of the proxy itself are never captured",
		},
		"the pod calls itself through the proxy": {
			connect(proxy, "10.244.0.2:8080"),
			"delivered to proxy-15006 (proxy) at :15006, as it is, for 10.244.0.2:8080; tproxy.capture.v4: inbound connections go to the proxy",
		},
		"the application calls itself": {
			connect(application, "10.244.0.2:8080"),
			"delivered to application at 10.244.0.2:8080; outbound.local: what the application sends within the pod stays there",
		},
		"the proxy hands a connection to the application": {
			bound(connect(proxy, "[fd00:10:244::2]:8080"), "::6"),
			"delivered to application at [fd00:10:244::2]:8080; outbound.passthrough.v6: the proxy hands a connection to the application",
		},
		"outbound": {
			connect(application, "192.0.2.1:80"),
			"delivered to proxy-15001 (proxy) at 127.0.0.1:15001, originally 192.0.2.1:80; outbound.capture: all other connections go to the proxy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, world, c.packet, c.want)
		})
	}
}

// TProxyTo needs a socket that is transparent, accepts the protocol, and is reachable at the
// address of the link.
func TestTProxyWithoutProxy(t *testing.T) {
	t.Parallel()
	listener := trace.Listener{Name: "proxy", Protocol: interception.ProtocolTCP, Port: 15006, Transparent: true}
	bound := func(address string) trace.Listener {
		l := listener
		l.Address = addresses(address)[0].Addr()
		return l
	}
	opaque, datagrams := listener, listener
	opaque.Transparent, datagrams.Protocol = false, interception.ProtocolUDP
	const dropped = "dropped on the way to 10.50.0.1:80; capture: why"
	for name, c := range map[string]struct {
		listeners []trace.Listener
		want      string
	}{
		"none":                       {nil, dropped},
		"not transparent":            {[]trace.Listener{opaque}, dropped},
		"of another protocol":        {[]trace.Listener{datagrams}, dropped},
		"bound to loopback":          {[]trace.Listener{bound("127.0.0.1/32")}, dropped},
		"bound to the other family":  {[]trace.Listener{bound("::/0")}, dropped},
		"bound to a second address":  {[]trace.Listener{bound("10.244.0.3/32")}, dropped},
		"bound to the first address": {[]trace.Listener{bound("10.244.0.2/32")}, "delivered to proxy at :15006, as it is, for 10.50.0.1:80; capture: why"},
		"bound to all":               {[]trace.Listener{listener}, "delivered to proxy at :15006, as it is, for 10.50.0.1:80; capture: why"},
	} {
		world := trace.Sidecar(nil, trace.SidecarOptions{Addresses: addresses("10.244.0.2/24", "10.244.0.3/24"), Listeners: c.listeners})
		world.Namespaces[0].Plans = append(world.Namespaces[0].Plans, build(t, func(b *interception.Builder) {
			deliver(b)
			chain := b.Mangle("chain")
			chain.Entry(interception.Prerouting, interception.Match{}, "why")
			chain.Do("capture", interception.Match{L4: interception.TCP()}, interception.TProxyTo{Port: 15006, Mark: interception.WholeMark(1)}, "why")
		}))
		if got := traced(t, world, arriving("10.244.0.9:40000", "10.50.0.1:80")).String(); got != c.want {
			t.Errorf("%s\n got: %s\nwant: %s", name, got, c.want)
		}
	}
}

// deliver makes mark 1 deliver IPv4 packets locally, whatever their destination.
func deliver(b *interception.Builder) {
	b.Route(interception.Route{ID: "route", Type: interception.RouteLocal, Destination: addresses("0.0.0.0/0")[0], Device: "lo", Table: 100, Why: "why"})
	b.PolicyRule(interception.PolicyRule{ID: "rule", Family: interception.IPv4, Mark: interception.WholeMark(1), Table: 100, Priority: 10, Why: "why"})
}

// The proxy gets the client's connection unchanged, connects to the application with the client's
// address, and receives the application's answers to the client.
func TestAnswersOfTProxy(t *testing.T) {
	t.Parallel()
	world := tproxyPod(t)
	const (
		byMark  = "tproxy.divert.accept: policy routing delivers what is marked"
		client  = "tproxy.capture.v4: inbound connections go to the proxy"
		free    = "outbound.proxy.uid: connections of the proxy itself are never captured"
		restore = "tproxy.restore: replies find back to the proxy"
	)
	exchange(t, world, arriving("10.244.0.9:40000", "10.244.0.2:8080"), ofProxy(), [3]string{
		"delivered to proxy-15006 (proxy) at :15006, as it is, for 10.244.0.2:8080; " + client,
		"sent by eth0 to 10.244.0.9:40000; no rule decided",
		"delivered to proxy-15006 (proxy) at :15006, as it is, for 10.244.0.2:8080; " + byMark,
	})
	exchange(t, world, arriving("10.244.0.9:40000", "10.50.0.1:80"), ofProxy(), [3]string{
		"delivered to proxy-15006 (proxy) at :15006, as it is, for 10.50.0.1:80; " + client,
		"sent by eth0 to 10.244.0.9:40000; no rule decided",
		"delivered to proxy-15006 (proxy) at :15006, as it is, for 10.50.0.1:80; " + byMark,
	})
	flow := exchange(t, world, from(inItsName(), "10.244.0.9", connect(proxy, "10.244.0.2:8080")), ofApplication(), [3]string{
		"delivered to application at 10.244.0.2:8080; " + free,
		"delivered to uid 1337 gid 1337 mark 0x539 transparent at 10.244.0.9:32768, from 10.244.0.2:8080; " + restore,
		"delivered to application at 10.244.0.2:8080; tproxy.own: the proxy sends in the name of its client",
	})
	if flow.Mark != 1337 {
		t.Errorf("the connection's mark is %d", flow.Mark)
	}
	exchange(t, world, connect(proxy, "10.244.0.2:8080"), ofProxy(), [3]string{
		"delivered to proxy-15006 (proxy) at :15006, as it is, for 10.244.0.2:8080; " + client,
		"delivered to uid 1337 gid 1337 at 10.244.0.2:32768, from 10.244.0.2:8080; " + byMark,
		"delivered to proxy-15006 (proxy) at :15006, as it is, for 10.244.0.2:8080; " + byMark,
	})
}

// A socket that has the packet's connection comes before a listener, and must be transparent like
// one.
func TestTProxyOfLivingConnections(t *testing.T) {
	t.Parallel()
	packet := alive(arriving("10.244.0.9:40000", "10.244.0.2:8080"))
	expect(t, tproxyPod(t), packet, "dropped on the way to 10.244.0.2:8080; tproxy.capture.v4: inbound connections go to the proxy")
	spare := func(r *sidecar.Redirect) { r.Existing = sidecar.ExistingSpare }
	expect(t, tproxyPod(t, spare), packet,
		"delivered to application at 10.244.0.2:8080; tproxy.spare: connections that were there before stay as they are")
	world := tproxyPod(t)
	// Before any answer: not yet established.
	next := traced(t, world, arriving("10.244.0.9:40000", "10.244.0.2:8080")).Next()
	expect(t, world, next,
		"delivered to proxy-15006 (proxy) at :15006, as it is, for 10.244.0.2:8080; tproxy.capture.v4: inbound connections go to the proxy")
	next.Flow.Taker = nil // its socket was closed
	expect(t, world, next, "refused: nothing has its connection at 10.244.0.2:8080; tproxy.capture.v4: inbound connections go to the proxy")
}

// A packet that connection tracking finds invalid is dropped where it comes in, before it can reset
// a connection.
func TestDropInvalid(t *testing.T) {
	t.Parallel()
	drops := func(r *sidecar.Redirect) { r.DropInvalid = true }
	redirects := func(r *sidecar.Redirect) { r.Mode = sidecar.ModeRedirect }
	reset := arriving("10.244.0.9:40000", "10.244.0.2:8080")
	reset.Flags = interception.FlagRST
	const dropped = "dropped on the way to 10.244.0.2:8080; drop.invalid: an invalid packet would reset a connection"
	expect(t, tproxyPod(t, drops), reset, dropped)
	expect(t, tproxyPod(t, drops, redirects), reset, dropped)
	expect(t, tproxyPod(t, redirects), reset, "delivered to application at 10.244.0.2:8080; no rule decided")
	reset.Flow = traced(t, tproxyPod(t, drops), arriving("10.244.0.9:40000", "10.244.0.2:8080")).Flow
	expect(t, tproxyPod(t, drops), reset,
		"delivered to proxy-15006 (proxy) at :15006, as it is, for 10.244.0.2:8080; tproxy.capture.v4: inbound connections go to the proxy")
}
