// SPDX-License-Identifier: Apache-2.0

// Package plugin is the chained CNI plugin of a mesh: on ADD it checks whether the pod has the
// mesh's proxy and, if so, redirects the pod's traffic to it, inside the pod's network namespace. A
// mesh gives it a name, a dialect and the dataplanes to link:
//
//	func main() {
//		plugin.Main(plugin.Options{
//			Name:       "my-mesh-cni",
//			Mesh:       sidecar.Mesh{Dialect: mymesh.Dialect(), Owner: "my-mesh"},
//			Dataplanes: dataplanes,
//		})
//	}
//
// The README of examples/istio-cni is the operator's manual: settings, the order of decisions, what
// each command does, error codes. It applies to the plugin of any mesh, under that plugin's names.
// Package pluginconf reads the settings.
//
// # Goals
//
// The container runtime starts the plugin for every pod of a node, so a call must be cheap: the
// plugin decides as much as it can before it opens anything, asks the API server with one request,
// and runs no other program unless a dataplane does. It never leaves a pod of the mesh uncaptured
// in silence. Each error says which step failed, how, and what the operator can do. DEL always
// succeeds.
//
// # Non-goals
//
// The plugin gives no interface to a pod, and is never a network's first plugin. This package links
// neither a dataplane nor Kubernetes' client, and has no ambient mode: with [Options].Before, a
// mesh decides about a pod before the plugin looks for a sidecar in it.
package plugin
