// SPDX-License-Identifier: Apache-2.0

// Package zds is the server of the ztunnel discovery protocol. By this protocol an agent of the
// node tells Istio's ztunnel, over a unix socket, which pods it serves, and hands it each pod's
// open network namespace:
//
//	proxy                                  agent
//	  | -- hello ----------------------->    |
//	  | <-- add (uid, names, namespace) --   |   for each pod, or keep (uid) without a namespace
//	  | -- ack, or ack with an error ---->   |
//	  | <-- snapshot sent ----------------   |   from now on the proxy may be ready
//	  | -- ack -------------------------->   |
//	  | <-- add, del ---------------------   |   as pods come and go
//	  | -- ack -------------------------->   |
//
// One message is one packet of a SOCK_SEQPACKET socket, a Protocol Buffers message of at most
// [MaxMessage] bytes. A request is sent when the one before is acknowledged.
//
// The caller says what is so ([Server.Set], [Server.Delete]), and the server brings each connected
// proxy there. During a rolling update of the proxy two are connected: the newer one gets the pods,
// and both are told to forget one. [Server.Await] waits until the newest proxy has acknowledged a
// pod, and its error says which condition holds: no proxy has ever been connected
// ([ErrNeverConnected]), the proxy is gone ([ErrDisconnected]), it has refused the pod
// ([ErrRefused]), or it has not answered yet ([ErrUnanswered]).
//
// A proxy that does not answer in time is disconnected. When it connects again, the pod that it has
// left unanswered comes last, so that it is told of all others before. The server also keeps its
// socket at the path, which other programs may remove or replace.
//
// The messages are pure, and parse on every system. The server needs Linux.
//
// # Non-goals
//
// An acknowledgement says that the proxy has opened its listeners once. Whether they are still
// there shows in the pod's namespace only, which this package does not look at.
package zds
