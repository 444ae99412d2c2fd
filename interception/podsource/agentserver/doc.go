// SPDX-License-Identifier: Apache-2.0

// Package agentserver serves CNI plugins on the node agent's sockets. [Server] speaks the protocol
// of docs/agent-socket.md, whose client is podsource.Agent. [IstioLogServer] takes log lines by the
// protocol of Istio's plugins. [Listen] and [ListenIstioLog] make the sockets.
//
// # Goals
//
// An agent answers only root and its own user, within bounds of size, number and time that no peer
// can widen. The server is a package apart from podsource, so that a plugin links neither it nor
// the server of net/http.
//
// # Non-goals
//
// The server caches no pods, and keeps no log lines or results: the caller supplies a
// podsource.Source, a [LogSink] and a [ResultSink]. It logs nothing itself.
package agentserver
