// SPDX-License-Identifier: Apache-2.0

// Package notice tells in which of a node's network namespaces any program has changed nf_tables
// rules, links, addresses, routes or policy rules. Who keeps such things right looks at those
// namespaces, and need not look at all of them again and again.
//
// Two sockets serve the whole node: the kernel's multicast of nf_tables and that of rtnetlink, with
// NETLINK_LISTEN_ALL_NSID (netlink(7)). A notice does not say what has changed, nor who changed it.
//
// # Non-goals
//
// iptables in its legacy flavour and ipset send no notices: look at such a namespace from time to
// time, or count what is in it. Changes of sysctls are not noticed either.
package notice
