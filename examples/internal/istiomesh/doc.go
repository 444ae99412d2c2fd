// SPDX-License-Identifier: Apache-2.0

// Package istiomesh has the mesh that the plugin istio-cni serves, for the programs around the plugin: what it captures is what the daemon
// tries the kernel for, what is repaired and what meshplan shows. It has no settings and no effects.
package istiomesh
