// SPDX-License-Identifier: Apache-2.0

// Package transparent has a proxy in a pod of a node made of namespaces, to which the node sends
// the connections that it captures: it accepts connections for any destination, and connects there
// with its client's address.
//
// # Non-goals
//
// It neither encrypts nor speaks to other proxies: what comes to the port of tunnels goes to the
// application's port.
package transparent
