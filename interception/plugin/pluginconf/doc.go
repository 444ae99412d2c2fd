// SPDX-License-Identifier: Apache-2.0

// Package pluginconf reads the entry of a mesh's plugin in a CNI configuration: its keys, their
// defaults, and what is wrong with one. The plugin calls [Paths.Parse]. The daemon calls the same
// functions before it writes an entry, so that it writes none that the plugin would refuse.
//
// The keys are those of Istio's plugin, for every mesh, and our own. Those from before Istio 1.23
// are read too: log_level, log_uds_address, and the block "kubernetes" with kubeconfig and
// exclude_namespaces. Where an entry has both, the newer key counts.
//
// Non-goals: writing entries, which the daemon does, and what the settings mean for a pod, which
// package plugin decides. The package is linked into the plugin, so it imports little.
package pluginconf
