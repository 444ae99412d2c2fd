// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/interception/trace"
)

// The names of the containers of the pods in ambient mode, and so of the pods in the table.
const (
	orders = "orders"
	stock  = "stock"
	audit  = "audit"
)

// The pods' Kubernetes namespace gets this label.
const (
	modeLabel   = "istio.io/dataplane-mode"
	modeAmbient = "ambient"
)

// meshScene has the addresses that the connections of pods in ambient mode are between, of one
// family.
type meshScene struct {
	// orders and stock are the addresses of the two enrolled pods.
	orders, stock netip.Addr
	// world is an address outside the node, at which a resolver answers, too.
	world netip.Addr
}

func meshProbe(from, what string, to netip.Addr, port interception.Port) probe {
	return probe{from: from, what: what, destination: netip.AddrPortFrom(to, uint16(port))}
}

// kept gives the probe's connection a name, by which it stays open.
func (p probe) kept(name string) probe {
	p.connection = name + " " + p.destination.String()
	return p
}

// before returns the connection that is opened before the enrolment, and stays open.
func (s meshScene) before() probe {
	return meshProbe(orders, "stock, opened before", s.stock, standardPort).kept("before")
}

// captured returns the connection that is opened while the pods are enrolled, and stays open.
func (s meshScene) captured(what string) probe {
	return meshProbe(orders, what, s.stock, standardPort).kept("captured")
}

// enrolled returns further connections while the pods are enrolled.
func (s meshScene) enrolled() []probe {
	query := meshProbe(orders, "a resolver, by UDP", s.world, dnsPort)
	query.datagram = true
	return []probe{
		meshProbe(stock, "orders", s.orders, standardPort),
		meshProbe(orders, "the world", s.world, httpPort),
		query,
		meshProbe(audit, "stock, outside the mesh", s.stock, standardPort),
		meshProbe(nodeName, "stock, a probe", s.stock, standardPort),
	}
}

// withdrawn returns new connections while the pods drain.
func (s meshScene) withdrawn() []probe {
	return []probe{
		meshProbe(orders, "stock", s.stock, standardPort),
		meshProbe(orders, "the world", s.world, httpPort),
		meshProbe(audit, "stock", s.stock, standardPort),
	}
}

// asPlanned returns the plan of an enrolled pod.
func asPlanned(p *interception.Plan) *interception.Plan { return p }

// proxyListeners returns the sockets that the node's proxy has in an enrolled pod.
func proxyListeners(n ambient.Numbers, ipv6 bool) []trace.Listener {
	mark := func(l trace.Listener) trace.Listener {
		l.Proxy, l.Mark = true, n.ProxyMark.Value
		return l
	}
	var all []trace.Listener
	for _, port := range []interception.Port{n.OutboundPort, n.InboundPort, n.TunnelPort, n.DNSPort} {
		all = append(all, mark(listenerOf(proxy, interception.ProtocolTCP, port)))
	}
	loopback := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	if ipv6 {
		loopback = append(loopback, netip.IPv6Loopback())
	}
	for _, address := range loopback {
		queries := mark(listenerOf(proxy, interception.ProtocolUDP, n.DNSPort))
		queries.Address = address
		all = append(all, queries)
	}
	return all
}
