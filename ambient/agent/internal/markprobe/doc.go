// SPDX-License-Identifier: Apache-2.0

// Package markprobe finds out by a packet whether a network namespace marks the connections that
// come from an address.
//
//	Prober --packet(7)--> lo --> prerouting: conntrack, all programs' rules --> raw(7) --> marked or not
//
// The packet looks like the first one of a TCP connection from a pod to the node. Its link-layer
// destination is the broadcast address, so that TCP ignores it and the kernel would not forward it:
// no program is asked to accept the connection, and the pod gets no answer.
//
// # Goals
//
// The answer is what the kernel does with the rules of all programs, whatever they look like.
// Nothing leaves the namespace, and the tracked connection ends at once.
//
// # Non-goals
//
// The package does not say why a packet is not marked.
package markprobe

import "errors"

// ErrUnseen is wrapped by the error about a packet that did not come back. That says nothing about
// marks: a filter may drop it, or the kernel because of rp_filter=1 (ip-sysctl.rst).
var ErrUnseen = errors.New("a packet to probe the rules did not come back over lo")
