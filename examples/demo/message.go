// SPDX-License-Identifier: Apache-2.0

package main

import "net/netip"

// workloadCommand makes this program one that runs in a container: see runWorkload. What it is told and what it answers are
// JSON values on its standard input and output; it ends with its input.
const workloadCommand = "workload"

// socketAddress is a socket to listen on. The first thing that a workload is told is a list of them,
// and its answer is a report: that it listens, or why it does not.
type socketAddress struct {
	// Name is what the listener calls itself.
	Name string
	// Network is "tcp4", "tcp6", "udp4" or "udp6".
	Network string
	Address netip.AddrPort
	// Transparent has a socket of TCP take connections to any address that the kernel hands over (IP_TRANSPARENT, ip(7)).
	Transparent bool
}

// order tells a workload to connect.
type order struct {
	Network     string
	Source      netip.Addr // the zero Addr leaves it to the kernel
	Destination netip.AddrPort
}

// report is the answer to an order: what the listener said, or what the connecting side met instead.
type report struct {
	Answer  answer
	Failure string
}

// answer is what a listener says to each connection: what it sees.
type answer struct {
	// Listener is the listener's name.
	Listener string
	// Original is the connection's destination at its start. A socket of UDP doesn't learn it.
	Original netip.AddrPort
	// Heard is what the other side said first.
	Heard string
}
