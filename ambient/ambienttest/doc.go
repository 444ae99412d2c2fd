// SPDX-License-Identifier: Apache-2.0

// Package ambienttest has a stand-in for the node's proxy, Istio's ztunnel, for tests of a node
// agent: ours, and those of other meshes.
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
// What is assumed of ztunnel is from its sources (https://github.com/istio/ztunnel):
//
//   - which messages come when, and what becomes of a pod: src/inpod/linux/statemanager.rs at
//     cd1e9a2
//   - marks, and listeners that two proxies can share: src/inpod/linux/config.rs at a59a5d6
//   - original destinations and foreign addresses: src/socket.rs at 08dab67
//   - no calls to the proxy's own ports: src/proxy/inbound_passthrough.rs at 00606d0
//
// # Non-goals
//
// The stand-in has no TLS and no policy, and its tunnel is not ztunnel's. It needs Linux, and the
// rights to enter the namespaces.
package ambienttest
