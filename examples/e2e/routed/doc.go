// SPDX-License-Identifier: Apache-2.0

// Command routed is a CNI plugin that connects pods as Calico does, by a veth. The pod's end has a
// single address (/32, /128) and a default route by 169.254.1.1 (fe80::1 for IPv6), which no link
// has and whose neighbour entry is static. The node has a route to each pod.
//
// It belongs to the end-to-end tests, as the cluster's network on one node. Addresses come from the
// IPAM plugin of its configuration.
//
// # Non-goals
//
// Policies, tunnels, and everything else that a production cluster needs.
package main
