// SPDX-License-Identifier: Apache-2.0

// Package podsource is where a CNI plugin learns about its pod: a source is asked for the pod that
// a [Ref] names, and answers with an [interception.Pod].
//
// [APIServer] asks the Kubernetes API server, with one GET of one pod, as a kubeconfig file says.
// [Agent] asks the node agent on the same node, over a unix socket; docs/agent-socket.md has the
// protocol, and package agentserver is the other side of it. [Annotations] asks no program: it has
// what the container runtime passed along. [Chain] asks several in order, within one time, and says
// how each failed.
//
// # Goals
//
// A plugin is started once for every pod of a node, so this package is small: a client for single
// requests of HTTP/1.1 instead of net/http, the standard library's JSON, and a reader for just the
// part of YAML that kubeconfig files are written in. Whatever arrives from outside has a bound on
// its size and on the time it may take; on the socket, both sides look who is at the other end.
// What may pass by itself is tried again, inside one overall deadline; everything else fails at
// once, as an [*Error] that says which server and which pod, what was answered, and what the
// operator can do. A recreated pod of the same name is never taken for the one that was asked for
// ([ErrStalePod]). Credentials appear in no error, even if a server sends them back.
//
// # Non-goals
//
// This is no general client of Kubernetes: it lists and watches nothing, runs no credential plugins
// (exec, auth-provider), and takes no proxy from the environment, which in a plugin is the
// container runtime's. It logs nothing.
package podsource
