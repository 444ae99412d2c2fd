// SPDX-License-Identifier: Apache-2.0

package ambienttest

import (
	"fmt"
	"net/netip"

	"github.com/meshcni/meshcni/ambient"
	"github.com/meshcni/meshcni/interception"
)

// NodeProxyOptions are the settings of a [NodeProxy].
type NodeProxyOptions struct {
	// Netns is the network namespace of the proxy's pod. It must stay open until the proxy is closed.
	// With nil the proxy listens in the namespace of its own process, and needs no rights to enter
	// another one.
	Netns *interception.Netns
	// Numbers has the ports to use; usually [ambient.IstioNodeNumbers].
	Numbers ambient.NodeNumbers
	// Tunnels reports whether a stand-in on another node serves the pod of an address. Connections of
	// the node's pods to it then go to its proxy's tunnel port, at the same address. It may be nil:
	// there are no tunnels.
	Tunnels func(netip.Addr) bool
	// TunnelsTo is the port to which all that comes to Numbers.TunnelPort goes on, at the same
	// address, for clients without a tunnel. If it is 0, such a connection begins with its
	// destination, as the tunnels of stand-ins do.
	TunnelsTo interception.Port
	// Resolvers answer the pods' queries: the first of the query's family. Without any the proxy has
	// no listeners for queries. Those for UDP are at the addresses that the pod has at the start.
	Resolvers []netip.AddrPort
	// Observe is told of each connection that the proxy takes, with nil, and once more of one that it
	// cannot continue, with the reason: [ErrLoop], what a tunnel has begun with, or why it cannot
	// connect. Several goroutines may call it at once. It may be nil.
	Observe func(Taken, error)
}

// Taken is a connection that a [NodeProxy] has taken.
type Taken struct {
	// Port is the port at which the proxy has accepted it.
	Port interception.Port
	// From is the client. To is the destination that the client has asked for.
	From, To netip.AddrPort
}

// String returns the connection in one line.
func (k Taken) String() string { return fmt.Sprintf("%s > %s at :%d", k.From, k.To, k.Port) }
