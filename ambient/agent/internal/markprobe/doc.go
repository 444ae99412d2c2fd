// SPDX-License-Identifier: Apache-2.0

// Package markprobe finds out by a packet whether a network namespace marks the connections that
// come from an address.
//
//	Prober --packet(7)--> lo --> prerouting: conntrack, all programs' rules --> raw(7) --> marked or not
//
// The packet looks like the first one of a TCP connection from a pod to the node. Its link-layer
// destination is a group address, so that TCP ignores it and the kernel would not forward it: no
// program is asked to accept the connection, and TCP sends the pod no answer.
//
// # Goals
//
// The answer is what the kernel does with the rules of all programs, whatever they look like.
// Nothing leaves the namespace, and the kernel forgets the connection at once.
//
// # Non-goals
//
// The package does not say why a packet is not marked.
package markprobe

import "errors"

// ErrUnseen is wrapped by the error about a packet that did not come back. That says nothing about
// marks: a filter may drop it, or the kernel because of the settings rp_filter=1 or
// drop_unicast_in_l2_multicast=1 (ip-sysctl.rst).
var ErrUnseen = errors.New("a packet to probe the rules did not come back over lo: see whether rules drop what comes by lo, " +
	"and set rp_filter to 2 where it is 1")

// ErrUntracked is wrapped by the error about a packet that came back unmarked, and that the kernel
// does not track, so that no rule can mark its connection. That says nothing about marks, either:
// packets of pods come by other interfaces.
var ErrUntracked = errors.New("another program's rules keep what comes by lo from being tracked: remove its rule notrack")
