// SPDX-License-Identifier: Apache-2.0

// Command node-watcher knows the pods of one node, and answers for them on a unix socket.
//
// The daemon install-cni starts it if the name of the node is set, and ends it; operators need not.
// It is a separate process because a Kubernetes client with a cache takes more memory than the rest
// of the daemon, and so that the daemon never waits for the API server, or crashes because of an
// answer.
//
// It speaks the protocol of docs/agent-socket.md: pods and status. Until it has seen all pods of
// the node it answers NotReady, so that the client uses another source at once. With -repair it
// also handles the pods that are not captured, with package repair/controller: it knows all pods
// already, and another process would take more memory than all its work.
//
// With -feed it also tells the agent of ambient mode, the program node-ambient, about the pods and
// their namespaces, and writes the pods' status annotations, by the protocol of
// docs/ambient-feed.md. Only then does it watch namespaces, of which it keeps names and labels.
//
// It reports changes of its state as lines of JSON on standard output; its log is JSON lines on
// standard error. The status on its socket includes how the API server answers now, and is not
// ready once the API server has been silent for as long as -silence. It ends when its standard
// input does, so that it never outlives its parent.
//
// Goals: little memory, bounded for each pod; no wake-up while nothing changes on the node, except
// for repair. Non-goals: pods of other nodes, and changing anything in the cluster beyond the
// operator's policy for pods that are not captured and the annotations of ambient mode.
package main
