// SPDX-License-Identifier: Apache-2.0

// Package plugin is the chained CNI plugin of a mesh: on ADD it looks whether the pod has a sidecar, and if so redirects the pod's traffic
// to it, inside the pod's network namespace.
//
// # Non-goals
//
// It has no interface of its own to give to a pod, and is never the first plugin of a network.
package plugin
