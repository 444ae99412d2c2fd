// SPDX-License-Identifier: Apache-2.0

// Package watcher starts the node-watcher, the process that knows the node's pods, and sends
// requests to it.
//
// Goals: the daemon itself links no Kubernetes client, waits for no API server, and survives every
// failure of the node-watcher, which is restarted when it ends. While it is not running or not
// ready, a request for a pod fails at once. Non-goals: knowing pods here, and asking the API
// server.
package watcher
