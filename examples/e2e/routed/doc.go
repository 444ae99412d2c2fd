// SPDX-License-Identifier: Apache-2.0

// Command routed is a CNI plugin that connects pods as Calico does: a veth of which the pod's end has a single address (/32, /128), a
// default route by 169.254.1.1 (fe80::1 for IPv6) that no link has, whose neighbour entry is written by hand, and on the node a route to each
// pod.
//
// It belongs to the end-to-end tests, where it is the cluster's network on one node. Addresses come from the IPAM plugin of its
// configuration.
//
// # Non-goals
//
// Policies, tunnels, anything that a cluster with more to do would need.
package main
