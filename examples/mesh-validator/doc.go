// SPDX-License-Identifier: Apache-2.0

// Command mesh-validator checks from inside a pod, by real connections, whether the pod's traffic
// is captured. It runs before the proxy, as an init container or a native sidecar, listens on the
// proxy's ports in its place, and exits with 126 if a connection does not arrive:
//
//	outbound  connects to an unassigned address (RFC 5737, RFC 3849), and must reach itself
//	self      connects, as the proxy's user, to the pod's address, and must reach the inbound port
//	probe     waits for the kubelet's startup probe, which must reach the inbound port
//
// It sends a nonce and expects an answer made with a key that only this process has, since a
// reachable port alone proves nothing. It recognises a connection from outside by its original
// destination.
//
// Goals: no privileges, no files, no other program; a message that names the direction and the
// family that failed, also as the container's termination message. Non-goals: it reads no rules,
// and does not check single excluded ports or networks.
package main
