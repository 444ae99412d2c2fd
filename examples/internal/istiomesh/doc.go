// SPDX-License-Identifier: Apache-2.0

// Package istiomesh has the mesh that the plugin istio-cni serves, for the programs around the
// plugin: the daemon tries the kernel for what it captures, the node-watcher repairs it, and
// meshplan shows it. It has no settings and no effects.
package istiomesh
