// SPDX-License-Identifier: Apache-2.0

// Package agentserver is the node agent's side of the sockets that plugins talk to: [Server] speaks
// the protocol of docs/agent-socket.md, whose other side is podsource.Agent, and [IstioLogServer]
// that of Istio's plugins for log lines. [Listen] and [ListenIstioLog] make the sockets.
//
// # Goals
//
// An agent answers for its pods within bounds of size, number and time that no peer can widen, to
// root and its own user only. A plugin doesn't carry the server, nor net/http on which it stands:
// so it is a package of its own.
//
// # Non-goals
//
// The server has no cache of pods: that is its podsource.Source. Log lines and results go to the
// program that takes them. It logs nothing itself.
package agentserver
