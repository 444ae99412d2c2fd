// SPDX-License-Identifier: Apache-2.0

// Package ambientpart starts node-ambient, the process that keeps the node's pods in ambient mode,
// and knows what it reports.
//
// There are two conditions. Part ambient is the process: without it, pods of the mesh cannot start,
// so that the node is not ready. Part ambient-proxy is the node's proxy, another program: while it
// is away the node is ready, because pods outside the mesh need no proxy, and the proxy's own pod
// may only start on a node that is ready.
//
// Goals: the daemon links no agent, and survives every failure of the process, which is started
// again when it ends, and when it does not answer any more. Non-goals: answers about single pods,
// which node-ambient gives at its socket.
package ambientpart
