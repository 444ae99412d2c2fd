// SPDX-License-Identifier: Apache-2.0

// Command node-ambient keeps the pods of one node in ambient mode. It holds their open network
// namespaces, serves the node's proxy (ztunnel), and has the rules and the host's sets in order.
//
//	node-watcher --feed.sock--> node-ambient --ztunnel.sock--> the node's proxy
//	CNI plugin --pluginevent.sock-->    |
//	                                    +--> rules in the pods, sets on the host, records
//
// It learns of pods from a source of package ambient/agent/feed, and of the namespaces of new pods
// from the CNI plugin (package ambient/agent/event). While the source is away it goes on from its
// records and from what the kernel holds.
//
// It reports how far it is with each pod as a line of JSON on standard output; its log is JSON
// lines on standard error. It ends when its standard input does, so that it never outlives its
// parent. The rules then stay as they are, and the proxy goes on serving.
//
// It is a process of its own because it has to outlive the Kubernetes client, which it does not
// link: a restart of node-watcher costs no connection of the proxy.
//
// Non-goals: the API server, metrics, and a second process of its kind on the node.
package main
