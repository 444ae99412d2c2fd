// SPDX-License-Identifier: Apache-2.0

// Command node-ambient keeps the pods of one node in ambient mode. It holds their open network
// namespaces, serves the node's proxy (ztunnel), and keeps the rules and the host's sets in order.
//
//	node-watcher --feed.sock--> node-ambient --ztunnel.sock--> the node's proxy
//	CNI plugin --pluginevent.sock-->    |
//	                                    +--> rules in the pods, sets on the host, records
//
// It learns of pods from a source of package ambient/agent/feed, and of the namespaces of new pods
// from the CNI plugin (package ambient/agent/event). While the source is away it goes on from its
// records and from what the kernel holds.
//
// It reports how far it is with each pod, the state of its feed and of the proxies, and the
// plugin's requests as lines of JSON on standard output (package examples/internal/ambientnews);
// its log is JSON lines on standard error. It ends when its standard input does, so that it never
// outlives its parent. The rules then stay as they are, and the proxy goes on serving.
//
// It is a process of its own because it has to outlive the Kubernetes client, which it does not
// link: a restart of node-watcher costs no connection of the proxy.
//
// # Capture on the node
//
// With mode node in the settings the node's own namespace captures the pods (package
// ambient/agent/nodemode). There is no socket for the proxy then, and no record: the host's sets
// say which pods are captured, and a file beside the records which proxies have interfaces.
//
// If the mode has changed since the last process ran, the pods of the node move one at a time. The
// agent of the former form runs, too, until it has no pod any more. A move needs the proxies of
// both forms, so the program takes the proxy's socket in each mode.
//
// # Two processes
//
// During a rolling update the node may have two of these processes. The one that was started later
// serves. It asks the other one, at the event socket, to hand over. That one ends its work, gives
// up its lock on a file beside the records, and stands by. A process writes only while it has the
// lock, so that no two processes write at once. There is one exception: if a process is killed, a
// program that it has started (iptables-restore) still ends its work.
//
// A process that stands by looks twice a second whether the lock is free, and then serves
// again: an update that is undone takes the newer process away for good. If the newer one has only
// failed, its parent starts it again at once, and it asks for the turn as before.
//
// # Non-goals
//
// The API server and metrics.
package main
