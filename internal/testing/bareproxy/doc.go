// SPDX-License-Identifier: Apache-2.0

// Package bareproxy stands in for the node's proxy of ambient mode where a benchmark measures what
// surrounds the proxy.
//
// Goal: a proxy that costs next to nothing. It acknowledges every pod at once, closes the pod's
// namespace, and relays no connection. Tests of what a proxy does use package ambient/ambienttest.
package bareproxy
