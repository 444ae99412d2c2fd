// SPDX-License-Identifier: Apache-2.0

// Command node-watcher knows the pods of one node, and answers for them on a unix socket.
//
// install-cni starts it, when it is told the name of its node, and ends it; nobody else has to. It is a process of its own because a client
// of Kubernetes with a cache costs more memory than the rest of the daemon, and so that nothing of the daemon has to wait for the
// API server, or goes down with what its answers may do to a client.
//
// It speaks the protocol of docs/agent-socket.md: pods and status. Until it has seen all pods of the node it answers NotReady, so that the
// asker turns to another source at once. With -repair it looks after the pods that are not captured, too, by package repair/controller: it
// knows all pods already, and a process more would cost more memory than anything it does.
//
// How it is doing is a line of JSON on standard output, whenever that changes; its log is JSON lines on standard error. How the API server
// answers now is in the status on its socket, which isn't ready once nothing was heard of the API server for as long as -silence says. It
// ends when its standard input does, so that it never outlives who has started it.
//
// Goals: little memory, bounded for each pod; no wake-up while nothing changes on the node, save those of repair. Non-goals: pods of other
// nodes, and changing anything in the cluster but what the operator's policy says about pods that are not captured.
package main
