// SPDX-License-Identifier: Apache-2.0

// Package haproxy runs HAProxy, as the distribution ships it, in the pod of a node's proxy: a proxy
// that knows nothing of the mesh takes the connections that the node captures, and connects to
// their destinations with their clients' addresses.
//
// # Non-goals
//
// It is no proxy for the capture in pods: HAProxy 2.6 cannot mark its connections to servers
// (SO_MARK), by which the rules there know them. It has no tunnels and no resolver.
package haproxy
