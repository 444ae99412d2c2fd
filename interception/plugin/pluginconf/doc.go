// SPDX-License-Identifier: Apache-2.0

// Package pluginconf is the entry of a mesh's plugin in a CNI configuration: its keys, their
// defaults, and what is wrong with one. The plugin reads it with [Paths.Parse], and the daemon asks
// the same functions before it writes it, so that no daemon writes what no plugin takes.
//
// The keys are those of Istio's plugin, whichever the mesh, and our own. Those of its earlier
// generation, before Istio 1.23, are read too: log_level, log_uds_address, and the block
// "kubernetes" with kubeconfig and exclude_namespaces. Where an entry has both, the newer key
// counts.
//
// Non-goals: writing entries, which is the daemon's, and what the settings mean for a pod, which is
// the plugin's. It is linked into the plugin, and imports little.
package pluginconf
