// SPDX-License-Identifier: Apache-2.0

// Package plugin is the chained CNI plugin of a mesh: on ADD it looks whether the pod has the
// mesh's proxy, and if so redirects the pod's traffic to it, inside the pod's network namespace. A
// mesh gives it a name, a dialect and the dataplanes that it links:
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
// each command does, error codes. All of it holds for the plugin of any mesh, under its own names;
// package pluginconf, below, reads the settings.
//
// # Goals
//
// A plugin is started for every pod of a node, and made for that: it decides as much as it can
// before it opens anything, asks the API server with one request, and executes nothing unless a
// dataplane does. A pod of the mesh never runs uncaptured in silence. Each error says which step
// failed, how, and what the operator can do. DEL always succeeds.
//
// # Non-goals
//
// A plugin has no interface of its own to give to a pod, and is never the first of a network. This
// package links neither a dataplane nor Kubernetes' client, and knows no ambient mode:
// [Options].Before is where a mesh decides about a pod before its sidecar is looked for.
package plugin
