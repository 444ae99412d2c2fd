// SPDX-License-Identifier: Apache-2.0

// Package podsource tells a CNI plugin about its pod: a [Source] returns the pod that a [Ref] names
// as an [interception.Pod].
//
// [APIServer] asks the Kubernetes API server, with one GET of one pod, as a kubeconfig file says.
// [Agent] asks the node agent on the same node, over a unix socket; docs/agent-socket.md has the
// protocol, and package agentserver is the other side of it. [Chain] asks several sources in order,
// within one timeout, and says how each failed.
//
// # Goals
//
// The container runtime starts a plugin for every pod of a node, so this package is small: a client
// for single requests of HTTP/1.1 instead of net/http's, the standard library's JSON, and package
// kubeconfig instead of a YAML library. Every answer has a bound on its size and on its time; on
// the socket, each side checks which user is at the other end. A failure that may pass by itself is
// retried, within one overall deadline. Any other is returned at once, as an [*Error] that names
// the server and the pod, and says what the server answered and what the operator can do. A
// recreated pod of the same name is never taken for the one that was asked for ([ErrStalePod]).
// Credentials appear in no error, even if a server sends them back.
//
// # Non-goals
//
// The package is not a general client of Kubernetes: it lists and watches nothing, runs no
// credential plugins (exec, auth-provider), and takes no proxy from the environment, which in a
// plugin is the container runtime's. It logs nothing.
package podsource
