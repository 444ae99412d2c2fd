// SPDX-License-Identifier: Apache-2.0

// Package nodes makes two nodes of network namespaces, whose pods reach each other, for tests with
// real packets between pods:
//
//	pod-1-1 --- host-1 --- host-2 --- pod-2-1
//	pod-1-2 ---                   --- pod-2-2
//
// A place, which is a pod or a host, can run applications, and be their client; and a pod can run a
// stand-in for the proxy of a node that captures ([Place.StartProxy]). Package trace follows a
// connection from place to place: [Place.Trace] describes a place to it, and [Place.Peer] is where
// a link leads.
//
// # Non-goals
//
// The processes are only files in proc. There is no service, no network policy and no masquerading.
// The package needs Linux, and rights that dataplanetest.RunTests gets for a test.
package nodes
