// SPDX-License-Identifier: Apache-2.0

// Command workload is all that runs in the pods of the end-to-end tests: the application, the proxy beside it, and the client that is run by
// exec to see who answers. It is also the program of the pods' sandboxes, which waits.
//
//	workload serve NAME PORT...        an application that answers requests over HTTP; for /?ask=URL it asks there, too
//	workload proxy sidecar NAME        a mesh proxy, with the ports, sources and arguments of Istio's
//	workload get URL...                what answers, one line of JSON for each
//	workload loop URL                  get once a second, until told to stop
//	workload namespace                 the number of the pod's network namespace
//	workload wait                      nothing, until told to stop
//
// Each proxy that a request passes writes its direction and its name into a header, and the application answers with it: via
// ["outbound client", "inbound server"] is a request that both sides captured, [] one that nobody did.
//
// # Goals
//
// What a test sees is what a request met on its way, end to end, over real connections.
//
// # Non-goals
//
// Encryption, balancing, or anything else that a proxy does with what it has captured.
package main
