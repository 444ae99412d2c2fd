// SPDX-License-Identifier: Apache-2.0

// Package watcher starts node-watcher, the process that knows the node's pods, and asks it.
//
// Goals: the daemon itself links no client of Kubernetes, waits for no API server, and outlives whatever becomes of that process, which is
// started again when it ends. Whoever asks for a pod while it isn't there or doesn't know yet is told so at once. Non-goals: knowing pods
// here, and asking the API server.
package watcher
