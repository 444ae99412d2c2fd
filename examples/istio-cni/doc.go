// SPDX-License-Identifier: Apache-2.0

// Command istio-cni is a chained CNI plugin: on ADD it looks whether the pod has an Istio sidecar, and if so redirects the pod's
// traffic to it, inside the pod's network namespace. It takes the place of Istio's own plugin, with the same configuration.
//
// It is started for every pod of a node, and made for that: it decides as much as it can before it opens anything, asks the API
// server with one request, and writes the rules in one transaction by netlink, without executing anything.
//
// README.md, beside this file, has the settings, the order of decisions and the error codes.
//
// # Non-goals
//
// It has no interface of its own to give to a pod, and is never the first plugin of a network. Istio's ambient mode is not there:
// a configuration that turns it on is refused for every pod that isn't left alone anyway.
package main
