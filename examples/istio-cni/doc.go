// SPDX-License-Identifier: Apache-2.0

// Command istio-cni is a chained CNI plugin. On ADD it checks whether the pod has an Istio sidecar,
// and if so redirects the pod's traffic to it, inside the pod's network namespace. It replaces
// Istio's own plugin, with the same configuration.
//
// The container runtime starts it for every pod of a node, so it decides as much as it can before
// it opens anything, queries the API server with one request, and writes the rules in one netlink
// transaction, without executing other programs.
//
// README.md, beside this file, has the settings, the order of decisions and the error codes.
//
// With ambient_enabled it hands each pod's open namespace to the agent of ambient mode first, and
// looks for a sidecar only in pods that the agent does not capture (package ambientplugin).
//
// # Non-goals
//
// It gives no interface to a pod, and is never the first plugin of a network. It writes no rules of
// ambient mode, and does not speak with the proxy.
package main
