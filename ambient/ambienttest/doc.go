// SPDX-License-Identifier: Apache-2.0

// Package ambienttest has stand-ins for the node's proxy, Istio's ztunnel, for tests of a node
// agent: ours, and those of other meshes.
//
// # Capture in the pods
//
// The [Proxy] connects to the agent's socket and speaks package zds's protocol. In each pod's
// network namespace it opens the listeners of ztunnel with ztunnel's marks, and relays connections:
//
//   - from the pod (Numbers.OutboundPort) to where they were going, by a marked socket;
//   - to the pod (Numbers.InboundPort) to the application, by a marked socket that has the client's
//     address;
//   - from the pod to a pod that another stand-in serves (ProxyOptions.Tunnels), to its proxy
//     (Numbers.TunnelPort): one line with the destination, and then the connection itself;
//   - queries (Numbers.DNSPort) to a resolver, if there is one.
//
// Tests of an agent's behaviour call [Start], which takes another program in the stand-in's place:
// a real ztunnel, or examples/stand-in-proxy. A [Witness] sees from outside what a proxy does.
//
// # Capture on the node
//
// The [NodeProxy] is for nodes that capture in their own namespace, as Istio 1.18 to 1.20 did. It
// follows no agent. It listens in the namespace of its own pod, to which the node sends what it
// captures. Its listeners are transparent and without a mark, so the address on its side of a
// connection is the destination. It relays:
//
//   - from the node's pods (NodeNumbers.OutboundPort) and to them (InboundPort), to where they were
//     going, by a socket that has the client's address;
//   - from a pod to one that a stand-in on another node serves (NodeProxyOptions.Tunnels), to that
//     proxy (TunnelPort), by tunnels as above, and by a socket that has the client's address;
//   - queries (DNSPort, at the addresses of its pod) to a resolver, if there is one.
//
// A client that asks for an address of the proxy's own pod is refused: the relay would come back.
//
// # What ztunnel does
//
// What is assumed of ztunnel in the pods is from its sources (https://github.com/istio/ztunnel),
// each file at the last commit that has changed it:
//
//   - which messages come when, and what becomes of a pod: src/inpod/statemanager.rs at 77e1f1b
//   - marks, and listeners that two proxies can share: src/inpod/config.rs at ec12059
//   - original destinations and foreign addresses: src/socket.rs at 0d39b85
//   - no calls to the proxy's own ports: src/proxy/inbound_passthrough.rs at 143160b
//   - the tunnel's port, what it begins with, and which destinations are refused:
//     src/config.rs at 284160d, src/proxy/inbound.rs at 75c2d62
//   - listeners for queries, and where these go: src/dns/server.rs at 3b80cf3, src/dns/forwarder.rs
//     at 6a29eb0
//   - environment and the document of pods: src/config.rs at 284160d, src/xds.rs at 3b80cf3
//
// Where that stand-in differs: its tunnel is one connection for each that it carries, where ztunnel
// keeps connections for more; a destination that it refuses is reset, where ztunnel answers with a
// status; and from the pod it refuses every destination that is loopback or has a port of the
// proxy's, where ztunnel refuses only those that are both (src/proxy/outbound.rs at 3b80cf3).
//
// # Non-goals
//
// The stand-ins have no TLS and no policy, and their tunnels are not ztunnel's. They need Linux,
// and the rights to enter the namespaces.
package ambienttest
