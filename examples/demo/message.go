// SPDX-License-Identifier: Apache-2.0

package main

import "net/netip"

// workloadCommand runs this program in a container; see runWorkload. It reads JSON orders from its
// standard input, writes JSON reports to its standard output, and ends when its input ends.
const workloadCommand = "workload"

// socketAddress is a socket to listen on. The first input of a workload is a list of them. Its
// first report states that it listens, or why it does not.
type socketAddress struct {
	// Name is the listener's name in its answers.
	Name string
	// Network is "tcp4", "tcp6", "udp4" or "udp6".
	Network string
	Address netip.AddrPort
	// Transparent lets a TCP socket take connections to any address that the kernel passes to it
	// (IP_TRANSPARENT, ip(7)).
	Transparent bool
}

// order makes a workload connect and talk to the listener once.
type order struct {
	Network     string
	Source      netip.Addr // the zero Addr lets the kernel choose
	Destination netip.AddrPort
	// Connection names a connection of TCP. The first order with a name opens it; further ones talk
	// over it. Without a name, the connection is closed after the answer.
	Connection string
	// Close closes the named connection, and nothing else.
	Close bool
}

// report answers an order: with the listener's answer, or with the connecting side's error.
type report struct {
	Answer  answer
	Failure string
}

// answer is a listener's answer to each line that it reads: what it sees.
type answer struct {
	// Listener is the listener's name.
	Listener string
	// Original is the connection's first destination. A UDP socket does not learn it.
	Original netip.AddrPort
	// Client is the address of the connecting side.
	Client netip.Addr
	// Heard is what the connecting side sent.
	Heard string
}
