// SPDX-License-Identifier: Apache-2.0

// Package meshcni is the root of the meshcni module. It has no code; the library is in the packages
// below it. Data goes through them in one direction:
//
//	annotations --Dialect.Parse--> Redirect --sidecar.Plan--> Plan --Apply--> kernel
//	                                           (Facts)        |                  |
//	      trace.Trace: where one packet ends  <---------------+               Observe
//	      proof: answers about all packets    <---------------+                  v
//	      render: text and pictures           <---------------+-----> Diff <-- State
//	                                                                   v
//	                                                                 Drift
//	conflist bytes --conflist.Insert / Remove--> conflist bytes
//	service account --kubeconfig.Build--> kubeconfig
//	Pod --repair.Diagnose--> Finding --repair.Decide--> Action
//	Pod + Namespace --ambient.Enrolled--> Decision;  Overrides --ambient.PodPlan--> Plan
//
// Begin with these packages:
//
//   - [github.com/meshcni/meshcni/interception] is the model: pods, plans, states and dataplanes.
//   - [github.com/meshcni/meshcni/interception/sidecar] decides about a pod and makes its plan.
//   - [github.com/meshcni/meshcni/ambient] does so for pods that a proxy of the node serves.
//   - [github.com/meshcni/meshcni/interception/trace] walks a packet through a plan.
//   - [github.com/meshcni/meshcni/interception/nftables] applies a plan, and reads it back.
//   - [github.com/meshcni/meshcni/interception/plugin] is the CNI plugin of a mesh.
//   - [github.com/meshcni/meshcni/conflist/installer] puts that plugin on a node.
//   - [github.com/meshcni/meshcni/repair] finds pods that are not captured.
//
// The pure packages import only the standard library and run on any operating system. The folder
// examples has programs made of these packages, among them the CNI plugin istio-cni, the daemon
// install-cni, a demonstration of both, and meshplan, which answers questions about plans.
// docs/architecture.md lists all packages.
package meshcni
