// SPDX-License-Identifier: Apache-2.0

// Command mesh-validator tries from inside of a pod whether its traffic is captured, by real connections. It runs before the proxy, as an init
// container or a native sidecar, listens in its place on the proxy's ports, and ends with 126 when a connection didn't come there:
//
//	outbound  it connects to an address of nobody's (RFC 5737, RFC 3849), and has to be answered by itself
//	self      as the proxy's user it connects to the pod's own address, and has to be answered at the inbound port
//	probe     it waits for the kubelet's startup probe, which comes from outside, and has to come to the inbound port
//
// What it sends has a nonce, and is answered with a key that only this process has: that a port is reachable proves nothing. A
// connection from outside is told by its original destination.
//
// Goals: no privileges, no files, no other program; a message that says which direction and which family failed, also as the container's
// termination message. Non-goals: it doesn't read rules, and says nothing about single ports or networks that are excluded.
package main
