// SPDX-License-Identifier: Apache-2.0

// Command workload runs everything in the pods of the end-to-end tests: the application, the proxy
// beside it, and the client that exec starts to see which application answers. It is also the
// waiting program of the pods' sandboxes.
//
//	workload serve NAME PORT...        an HTTP server; for /?ask=URL it queries that URL too
//	workload proxy sidecar NAME        a mesh proxy with Istio's ports, sources and arguments
//	workload transparent               a node's proxy, for connections that the node captures
//	workload get URL...                the answers, one line of JSON for each
//	workload loop URL                  get once a second, until stopped
//	workload load URL                  get all the time, on new connections and on a kept one
//	workload accepts ADDRESS           whether a connection is accepted or refused
//	workload namespace                 the number of the pod's network namespace
//	workload wait                      nothing, until stopped
//
// Each proxy that a request passes adds its direction and name to a header, and the application
// returns them. With via ["outbound client", "inbound server"] both sides captured the request;
// with [] neither did.
//
// # Goals
//
// A test sees what a request met on its way, end to end, over real connections.
//
// # Non-goals
//
// Encryption, balancing, and everything else that a proxy does with captured traffic.
package main
