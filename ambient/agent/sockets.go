// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/ambient/agent/internal/sockets"
	"github.com/meshcni/meshcni/interception"
)

// proxyListens reports whether the proxy has its listeners in the namespace, of whatever family.
func proxyListens(in *interception.Netns, n ambient.Numbers) (bool, error) {
	families, err := sockets.Served(in, n.OutboundPort, n.InboundPort, n.TunnelPort)
	return len(families) > 0, err
}

// proxyIsConnected reports whether the proxy carries a connection in the namespace.
func proxyIsConnected(in *interception.Netns, n ambient.Numbers) (connected bool, err error) {
	err = sockets.Each(in, sockets.Live, func(s sockets.Socket) (enough bool) {
		connected = connected || carries(s, n)
		return connected
	})
	return connected, err
}

// carries reports whether the socket is one of a connection that the proxy carries. Most of these
// were accepted at one of the proxy's ports. What TPROXY has delivered has the local address that
// the client asked for, and is known by the mark of the listener, which it inherits. So is the
// proxy's connection to the application. The proxy's connections to other proxies and to resolvers
// have its mark, too, and may outlive those that they have carried: they do not count.
func carries(s sockets.Socket, n ambient.Numbers) bool {
	accepting := []interception.Port{n.OutboundPort, n.InboundPort, n.TunnelPort}
	if slices.Contains(accepting, interception.Port(s.Local.Port())) {
		return true
	}
	outlives := []interception.Port{n.TunnelPort, resolverPort}
	return n.ProxyMark.Matches(s.Mark) && !slices.Contains(outlives, interception.Port(s.Remote.Port()))
}

// resolverPort is the port of resolvers (RFC 1035, section 4.2).
const resolverPort interception.Port = 53
